"""What the network takes from the operating system: sockets, files that go into them, addresses of names.

Everything else about a socket is its own methods and the loop's. A simulation hands in sockets of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from barnabas.core.host_lookup import Resolve

SendFile = Callable[[int, int, int, int], int]
"""Takes the descriptors of a socket and of a file, the position in it and a count; returns how much left."""


def system_address_of(host: str) -> str:
    """The first address of a name, of IPv4 if it has one, as Java prefers it; OSError or ValueError if it
    has none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: each[0] is not socket.AF_INET)
    return str(found[0][4][0])


class Sockets(NamedTuple):
    open: Callable[[socket.AddressFamily, socket.SocketKind], socket.socket] = socket.socket
    send_file: SendFile = os.sendfile
    address_of: Resolve = system_address_of
    attentive_ms: float = 0.0
    """How long to look for the next request before sleeping, where one follows the other (`attention`): about
    as long as it takes to be woken."""


SYSTEM_SOCKETS = Sockets(attentive_ms=0.1)
