"""Opening a log: completion of interrupted swaps, recovery of segments."""
