"""A piece of a file that goes to a socket without passing through Python.

The storage engine hands out regions, a response carries them, the network sends them with
`sendfile`. Three packages share this noun, so it lives below them all.
"""

from __future__ import annotations

from typing import Protocol

READ_BYTES = 256 * 1024
READ_AHEAD_BYTES = 1024 * 1024


class OpenFile(Protocol):
    """A file that stays open for as long as anyone holds on to it."""

    def fileno(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def read_now(self, position: int, length: int) -> bytes | bytearray | None:
        """The same, unless that might wait for the disk: then nothing."""
        ...


class FileRegion:
    """`length` bytes of `file` from `position`.

    Holding the region keeps the file open, so a segment may be deleted while an answer that
    carries a part of it still waits for a slow reader.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def is_at_hand(self, begin: int, length: int) -> bool:
        """Whether `length` bytes from `begin` on are in memory, as far as the first
        and the last of them tell."""
        read_now, position = self.file.read_now, self.position + begin
        return read_now(position, 1) is not None and read_now(position + length - 1, 1) is not None

    def bring_in(self, begin: int, length: int) -> None:
        """Have the disk give `length` bytes from `begin` on, which may take long; whoever reads on finds some
        more of the file at hand."""
        position, end = self.position + begin, self.position + begin + length + READ_AHEAD_BYTES
        while position < end and (some := self.file.read_at(position, min(READ_BYTES, end - position))):
            position += len(some)

    def read(self) -> bytes:
        """The bytes themselves, for those who must see them (TLS, down-conversion, tests)."""
        return self.file.read_at(self.position, self.length)

    def __repr__(self) -> str:
        return f"FileRegion({self.position}+{self.length})"
