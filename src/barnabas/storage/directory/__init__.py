"""One log directory (a disk): its content, the checkpoints of its logs, logs that are moved or deleted."""
