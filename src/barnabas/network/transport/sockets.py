"""Operating system interface of the network: sockets, sendfile, name resolution.

Everything else about a socket is its own methods and the loop's. A simulation supplies its own sockets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from barnabas.core.addressing.host_lookup import Resolve

SendFile = Callable[[int, int, int, int], int]
"""Takes the descriptors of a socket and of a file, the position in it and a count; returns the bytes sent."""


def system_address_of(host: str) -> str:
    """First address of a name, IPv4 if it has one, as Java prefers; OSError or ValueError if it has none."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    found.sort(key=lambda each: each[0] is not socket.AF_INET)
    return str(found[0][4][0])


class Sockets(NamedTuple):
    open: Callable[[socket.AddressFamily, socket.SocketKind], socket.socket] = socket.socket
    send_file: SendFile = os.sendfile
    address_of: Resolve = system_address_of
    busy_poll_ms: float = 0.0
    """Time of busy polling for the next request (`network.busy_poll`): about the time to be woken."""
    stamps_arrivals: bool = False
    """Whether received bytes carry the time of their arrival (`network.transport.arrivals`)."""


SYSTEM_SOCKETS = Sockets(busy_poll_ms=0.1, stamps_arrivals=True)
