"""Sockets without knowledge of any API: frames come in, responses go out in the order of their requests."""
