"""How bytes become columns and columns bytes: one file per format."""
