"""Security of listeners and connections, built from the configuration."""
