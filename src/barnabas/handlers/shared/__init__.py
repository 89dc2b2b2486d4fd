"""Parts that several handlers share."""
