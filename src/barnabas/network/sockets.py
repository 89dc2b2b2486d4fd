"""What the network takes from the operating system: sockets, and files that go into them.

Everything else about a socket is its own methods and the loop's. A simulation hands in sockets of its own.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import NamedTuple

SendFile = Callable[[int, int, int, int], int]
"""Takes the descriptors of a socket and of a file, the position in it and a count; returns how much left."""


class Sockets(NamedTuple):
    open: Callable[[socket.AddressFamily, socket.SocketKind], socket.socket] = socket.socket
    send_file: SendFile = os.sendfile


SYSTEM_SOCKETS = Sockets()
