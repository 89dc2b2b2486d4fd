"""Child processes of one machine: a supervisor, and a local ZooKeeper."""
