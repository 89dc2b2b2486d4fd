"""Memory that a measurement can count on.

A virtual machine gets its memory from its host page by page, when one is first written to, and gives back
what it does not use. A megabyte of log takes 2 ms in pages that are new, and 0.4 in others: what is measured
would be the host, and whose turn it was when the used pages came to their end. So pages are held, and let go
of just before they are wanted.
"""

from __future__ import annotations

import mmap

import psutil

PIECE_BYTES = 1 << 26
SHARE_MAX = 0.5
"""Of what is available."""


class WarmMemory:
    def __init__(self, wanted_bytes: int) -> None:
        size = min(wanted_bytes, int(psutil.virtual_memory().available * SHARE_MAX))
        self._pieces = [_written() for _ in range(size // PIECE_BYTES)]

    def release(self, size: int) -> None:
        for _ in range(min(-(-size // PIECE_BYTES), len(self._pieces))):
            self._pieces.pop().close()


def _written() -> mmap.mmap:
    piece = mmap.mmap(-1, PIECE_BYTES)
    piece.write(bytes(PIECE_BYTES))
    return piece
