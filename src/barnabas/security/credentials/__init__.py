"""What the broker keeps to check what clients show: SCRAM credentials and delegation tokens."""
