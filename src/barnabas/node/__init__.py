"""The wiring: the only package that knows the concrete classes, and the order of start and stop."""
