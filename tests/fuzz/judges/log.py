"""The log has no traceback, no error, and no more lines than its limits allow, for any requests of
clients."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from barnabas.core.limits import AUDIT_LINES_PER_SECOND_MAX, LOG_LINES_PER_SECOND_MAX
from tests.fuzz.world import World

KINDS_MAX = 12
"""Kinds of complaints that one second may have, each with its own limit."""
BURST = 200
LOUD = re.compile(r" (ERROR|CRITICAL) ")
HARMLESS = re.compile(r"SIGTERM|set aside")


class Log:
    def __init__(self, world: World) -> None:
        self._world = world
        self._at = world.log_path.stat().st_size
        self._began_s = time.monotonic()

    def complaints(self) -> Iterator[str]:
        """Of the lines since the last call."""
        with self._world.log_path.open("rb") as file:
            file.seek(self._at)
            text = file.read().decode("utf-8", "replace")
        self._at += len(text.encode())
        now_s = time.monotonic()
        spent_s, self._began_s = now_s - self._began_s, now_s
        lines = text.splitlines()
        traceback = text.find("Traceback (most recent call last)")
        if traceback >= 0:
            yield f"traceback: {text[max(0, traceback - 200) : traceback + 3_000]}"
        for line in lines:
            if LOUD.search(line) and traceback < 0:
                yield f"error: {line[:500]}"
                break
        a_second = LOG_LINES_PER_SECOND_MAX * KINDS_MAX + 2 * AUDIT_LINES_PER_SECOND_MAX
        if len(lines) > BURST + a_second * (spent_s + 1.0):
            yield f"log flood: {len(lines)} lines in {spent_s:.1f} s"
