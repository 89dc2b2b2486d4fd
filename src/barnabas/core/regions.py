"""A piece of a file that goes to a socket without passing through Python.

The storage engine hands out regions, a response carries them, the network sends them with
`sendfile`. Three packages share this noun, so it lives below them all.
"""

from __future__ import annotations

from typing import Protocol


class OpenFile(Protocol):
    """A file that stays open for as long as anyone holds on to it."""

    def fileno(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
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

    def read(self) -> bytes:
        """The bytes themselves, for those who must see them (TLS, down-conversion, tests)."""
        return self.file.read_at(self.position, self.length)

    def __repr__(self) -> str:
        return f"FileRegion({self.position}+{self.length})"
