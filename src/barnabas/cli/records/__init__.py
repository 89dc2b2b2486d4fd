"""Records of the commands `produce` and `consume`: lines in both directions, writing, printing."""
