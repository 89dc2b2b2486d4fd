"""Live view of a cluster in the terminal: `source` asks, `screen` draws, `keys` reads the keyboard."""
