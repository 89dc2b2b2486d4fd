"""State of groups: members, assignments, their records and their memory."""
