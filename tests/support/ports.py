"""Ports that stay free until a server takes them.

A port that the system hands out comes from the range of outgoing connections, so any client
may take it again between our look and the server's bind, or while a killed broker is down. Below
that range only servers live; a random start keeps parallel test processes apart.
"""

from __future__ import annotations

import os
import random
import socket

FIRST = 15_000
LAST = 32_000

_chance = random.Random(os.urandom(8))


def free_port(host: str = "127.0.0.1") -> int:
    """A port below the range of outgoing connections on which no process listens now."""
    return free_ports(1, host)


def free_ports(count: int, host: str = "127.0.0.1") -> int:
    """The first of as many such ports in a row."""
    for _ in range(1_000):
        port = _chance.randrange(FIRST, LAST)
        if all(_is_free(host, port + each) for each in range(count)):
            return port
    raise RuntimeError("no free port")


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
