"""What is wrong with bytes from a peer, in one class.

Whatever is broken in a frame (a length that points past the end, a varint that never stops,
text that is not UTF-8), the caller can do only one thing about it: close the connection. So
decoders raise one exception, and nothing else that Python might throw gets past them.

A message with much in it is no fault: `LargeMessage` tells whoever was in a hurry to take its time.
"""

from __future__ import annotations


class MalformedMessage(ValueError):
    """Bytes that are no message of the kind and version they claim to be."""


class LargeMessage(Exception):
    """More elements than one turn of the loop should read or write: to be done in slices."""
