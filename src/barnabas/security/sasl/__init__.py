"""SASL: how somebody proves who they are. Both sides of the mechanisms, without I/O."""
