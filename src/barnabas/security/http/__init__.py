"""Access to HTTP interfaces: users, tokens and TLS."""
