"""Options, cluster access and schemas for readers and writers."""
