"""Testing tools for users: a real broker inside the test process, and pytest fixtures."""
