"""Sources: one file per type."""
