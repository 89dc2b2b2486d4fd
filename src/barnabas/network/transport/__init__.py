"""Bytes in and out of sockets, plain and over TLS."""
