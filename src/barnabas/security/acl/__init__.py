"""Access control lists: rules on resources, and the authorizer that decides by them. No I/O."""
