"""Errors of decoders.

For any fault in a frame (a length past the end, an endless varint, text that is not UTF-8) the caller closes
the connection. So decoders raise one exception, and convert every other exception that Python might raise.

A large message is not a fault: `LargeMessage` makes the caller decode or encode it in slices.
"""

from __future__ import annotations


class MalformedMessage(ValueError):
    """Bytes that are not a message of the kind and version they claim to be."""


class LargeMessage(Exception):
    """More elements than one turn of the loop should decode or encode: slices are needed."""
