"""Processing without I/O: ledger of finished offsets, lanes, retry policy."""
