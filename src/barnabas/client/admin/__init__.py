"""Administrative requests, by subject."""
