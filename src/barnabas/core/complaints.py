"""Log lines about peers' faults, and what else peers bring about at will, at a rate that they cannot raise.

Whoever can send bytes can make a broker complain, so a complaint has a kind and each kind
has so many lines a second; the rest are counted and the next line that passes says how many
were left out. A complaint names the peer and the rule that was broken, never the bytes.
"""

from __future__ import annotations

import logging

from barnabas.core.clock import Clock
from barnabas.core.limits import LOG_LINES_PER_SECOND_MAX


class _Window:
    __slots__ = ("left_out", "lines", "since_ms")

    def __init__(self, since_ms: float) -> None:
        self.since_ms = since_ms
        self.lines = 0
        self.left_out = 0


class Complaints:
    """`kind` is chosen by the code, never by the peer: the kinds are few and their number is fixed."""

    def __init__(
        self, logger: logging.Logger, clock: Clock, *, lines_per_second: int = LOG_LINES_PER_SECOND_MAX
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._lines_per_second = lines_per_second
        self._windows: dict[str, _Window] = {}

    def info(self, kind: str, message: str, *arguments: object) -> None:
        """For what may be a fault or a habit: a probe that connects and leaves."""
        self._write(logging.INFO, kind, message, arguments, None)

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        self._write(logging.WARNING, kind, message, arguments, None)

    def error(self, kind: str, message: str, *arguments: object, cause: BaseException) -> None:
        """For faults of our own that a peer's request brought to light: with the traceback."""
        self._write(logging.ERROR, kind, message, arguments, cause)

    def _write(
        self,
        level: int,
        kind: str,
        message: str,
        arguments: tuple[object, ...],
        cause: BaseException | None,
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        window = self._windows.get(kind)
        if window is None:
            window = self._windows[kind] = _Window(now_ms)
        if now_ms - window.since_ms >= 1_000:
            window.since_ms, window.lines = now_ms, 0
        if window.lines >= self._lines_per_second:
            window.left_out += 1
            return
        window.lines += 1
        if window.left_out:
            message, arguments = message + " (%d like it left out)", (*arguments, window.left_out)
            window.left_out = 0
        self._logger.log(level, message, *arguments, exc_info=cause)
