"""Calls of the admin client about several resources at once, with an error for each resource."""
