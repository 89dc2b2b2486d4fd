"""Private unix socket of the shared store.

The socket lies in a directory that only its owner can enter (mode 0700). Both sides check that the other side
runs as the same user, or as root. The lock of the store's journal makes sure that no other store serves the
directory. So a socket file that is found at the start is left over and is replaced.

The address of a unix socket has room for about a hundred bytes. A longer path is reached through the
descriptor of its directory, where the system has `/proc/self/fd`.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SOCKET_NAME: Final = "socket"
BACKLOG: Final = 1_024
_ADDRESS_BYTES_MAX: Final = 103
"""The smallest limit of the supported systems (macOS), without the byte at the end."""
_DESCRIPTORS: Final = Path("/proc/self/fd")
_LINUX_CREDENTIALS = struct.Struct("3i")
_XUCRED = struct.Struct("Iihh16I")
_SOL_LOCAL, _LOCAL_PEERCRED = 0, 1


class ForeignPeer(ConnectionError):
    """The process at the other end belongs to another user."""


def listen(path: Path) -> socket.socket:
    """Listen at `path`, in place of a socket that an earlier process left there."""
    with suppress(FileNotFoundError):
        path.unlink()
    listening = socket.socket(socket.AF_UNIX)
    try:
        with _address(path) as address:
            listening.bind(address)
        path.chmod(0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def connect(path: Path) -> socket.socket:
    """Connect without waiting: OSError if there is no listener, or if its backlog is full."""
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.setblocking(False)
        with _address(path) as address:
            connected.connect(address)
        check_peer(connected)
    except BaseException:
        connected.close()
        raise
    return connected


def check_peer(connected: socket.socket) -> None:
    """Raise ForeignPeer unless the other end runs as this user or as root."""
    uid = _peer_uid(connected)
    if uid is not None and uid not in (os.geteuid(), 0):
        raise ForeignPeer(f"the process at the other end belongs to user {uid}, this one to {os.geteuid()}")


def _peer_uid(connected: socket.socket) -> int | None:
    """User of the peer process. None where the system does not tell; the directory's mode protects there."""
    uid: int | None = None
    if sys.platform == "linux":
        told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _LINUX_CREDENTIALS.size)
        uid = _LINUX_CREDENTIALS.unpack(told)[1]
    elif sys.platform == "darwin":
        told = connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
        uid = _XUCRED.unpack(told)[1]
    return uid


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Address for `bind` and `connect` that fits."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    if not _DESCRIPTORS.is_dir():
        raise OSError(f"the path of the socket is longer than {_ADDRESS_BYTES_MAX} bytes: {path}")
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_DESCRIPTORS / str(descriptor) / path.name)
    finally:
        os.close(descriptor)
