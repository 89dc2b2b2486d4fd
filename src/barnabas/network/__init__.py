"""Sockets, with no knowledge of any API: frames come in, answers go out in the order of their requests."""
