"""One log directory, a disk: what lies in it, what it remembers of its logs, and logs that come or go."""
