"""For tests: a real broker inside the test's own process, and disks that fail on purpose."""
