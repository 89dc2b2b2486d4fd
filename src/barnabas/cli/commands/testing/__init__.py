"""Commands for tests: record and replay the traffic of clients."""
