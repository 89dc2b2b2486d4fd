"""SASL authentication: both sides of the mechanisms, without I/O."""
