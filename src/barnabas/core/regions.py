"""File region that goes to a socket with `sendfile`, without passing through Python.

The storage engine returns regions, a response carries them, the network sends them. Three packages share this
noun, so it lives below them all.
"""

from __future__ import annotations

from typing import Protocol

READ_BYTES = 256 * 1024
READ_AHEAD_BYTES = 1024 * 1024


class OpenFile(Protocol):
    """A file that stays open as long as a reference to it exists."""

    def fileno(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_now(self, position: int, length: int) -> bytes | bytearray | None:
        """The same, or None if the read might wait for the disk."""
        ...


class FileRegion:
    """`length` bytes of `file` from `position`.

    The region keeps its file open. A segment may be deleted while a response with a part of it still waits
    for a slow reader.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def is_at_hand(self, begin: int, length: int) -> bool:
        """Whether `length` bytes from `begin` on are in the page cache, judged by the first and the last
        byte."""
        read_now, position = self.file.read_now, self.position + begin
        return read_now(position, 1) is not None and read_now(position + length - 1, 1) is not None

    def bring_in(self, begin: int, length: int) -> None:
        """Read `length` bytes from `begin` on from disk, which may take long. The system's read-ahead loads
        more."""
        position, end = self.position + begin, self.position + begin + length + READ_AHEAD_BYTES
        while position < end and (some := self.file.read_at(position, min(READ_BYTES, end - position))):
            position += len(some)

    def read(self) -> bytes:
        """The bytes themselves, for TLS and down-conversion."""
        return self.file.read_at(self.position, self.length)

    def __repr__(self) -> str:
        return f"FileRegion({self.position}+{self.length})"
