"""Turns of a process's event loops: how much processor time the longest one took.

`python -m tests.fuzz.turns FILE BUG -- arguments` runs the command line of Barnabas on asyncio's own loop,
and keeps the longest turn in FILE. BUG is the name of a planted bug, or empty. A turn is all that the loop
computes before it looks at its sockets again: another client waits for it. Processor time says the same on a
machine that others use.
"""

from __future__ import annotations

import importlib
import mmap
import struct
import sys
import time
from asyncio.base_events import BaseEventLoop
from pathlib import Path
from typing import Any

SECONDS = struct.Struct("=d")


class Turns:
    """The longest turn since `forget`, as another process reads it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(SECONDS.pack(0.0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SECONDS.size)

    @property
    def longest_s(self) -> float:
        seconds: float = SECONDS.unpack_from(self._memory)[0]
        return seconds

    def forget(self) -> None:
        self.note(0.0)

    def note(self, seconds: float) -> None:
        SECONDS.pack_into(self._memory, 0, seconds)


def measure(path: Path) -> None:
    """Note the turns of all loops of this process."""
    turns = Turns(path)
    run_once: Any = BaseEventLoop._run_once  # type: ignore[attr-defined]

    def measured(loop: BaseEventLoop) -> None:
        began_s = time.thread_time()
        try:
            run_once(loop)
        finally:
            spent_s = time.thread_time() - began_s
            if spent_s > turns.longest_s:
                turns.note(spent_s)

    BaseEventLoop._run_once = measured  # type: ignore[attr-defined]


def main() -> None:
    path, bug, _, *arguments = sys.argv[1:]
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    if bug:
        from tests.fuzz.planted import BUGS
        from tests.support import planting

        planting.plant(planting.named(BUGS, bug))
    measure(Path(path))
    sys.argv[1:] = arguments
    importlib.import_module("barnabas.cli.main").main()


if __name__ == "__main__":
    main()
