"""What the operating system says about a connection, in a few words for a person."""

from __future__ import annotations

import socket


def reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in text:
        return "connection refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "connection reset"
    return getattr(error, "strerror", None) or text or type(error).__name__
