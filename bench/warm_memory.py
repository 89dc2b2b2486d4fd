"""Memory that a measurement can count on.

A virtual machine gets its memory from its host page by page, when one is first written to, and gives back
within seconds what was let go of. A megabyte of log takes 2 ms in pages that are new, and 0.3 in others: what
is measured would be the host, and who takes longer would meet more new pages. So a process beside the
measurement writes to pages before it, and lets go of them while it lasts, as fast as they are taken.
"""

from __future__ import annotations

import mmap
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

PIECE_BYTES = 1 << 24
AHEAD_BYTES = 1 << 27
"""Released in advance: more than is taken between two looks."""
LOOK_EVERY_S = 0.01
SHARE_MAX = 0.5
"""Of what is available."""


@contextmanager
def warm_memory(written_bytes: int, replicas: int = 1) -> Iterator[None]:
    """While this lasts, so many bytes find used pages, in every log and on their way there."""
    if not written_bytes:
        yield
        return
    command = [sys.executable, __file__, str((replicas + 1) * written_bytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline(), "no memory was written to"
        yield


def hold(wanted_bytes: int) -> None:
    """Until the input ends, which it does with the measurement."""
    size = min(wanted_bytes, int(psutil.virtual_memory().available * SHARE_MAX))
    if size < wanted_bytes:
        print(f"    {size:,} bytes find warm memory, {wanted_bytes:,} want it", file=sys.stderr, flush=True)
    pieces = [_written() for _ in range(-(-size // PIECE_BYTES))]
    enough = _free_bytes() + AHEAD_BYTES
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], LOOK_EVERY_S)[0]:
        while pieces and _free_bytes() < enough:
            pieces.pop().close()


def _written() -> mmap.mmap:
    piece = mmap.mmap(-1, PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # In large pages, as large writes take them: small ones come from remains that those do not touch.
    piece.madvise(mmap.MADV_HUGEPAGE)
    for position in range(0, PIECE_BYTES, mmap.PAGESIZE):
        piece[position] = 1
    return piece


def _free_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE


if __name__ == "__main__":
    hold(int(sys.argv[1]))
