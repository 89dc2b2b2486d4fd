"""Pages of the schemas of a registry."""
