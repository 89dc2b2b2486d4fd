"""Free TCP ports on the loopback interface.

A port is free only until somebody takes it: the ones handed out here are remembered for the
life of this process, and the kernel hands ephemeral ports out in an order that makes a clash
between two test processes unlikely.
"""

from __future__ import annotations

import socket

_given: set[int] = set()


def free_port() -> int:
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port
