"""Rate-limited logger, so that clients cannot flood the log.

Any peer that can send bytes can cause a log line. Each line has a kind, and each kind has a number of lines
per second. The rest are counted, and the next line shows how many were left out. A line names the peer and
the broken rule, never the bytes.
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


class RateLimitedLogger:
    """Log lines by kind. The code chooses the kind, never the peer: the number of kinds is fixed."""

    def __init__(
        self, logger: logging.Logger, clock: Clock, *, lines_per_second: int = LOG_LINES_PER_SECOND_MAX
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._lines_per_second = lines_per_second
        self._windows: dict[str, _Window] = {}

    def info(self, kind: str, message: str, *arguments: object) -> None:
        """For an event that may be a fault or a habit: a probe that connects and leaves."""
        self._write(logging.INFO, kind, message, arguments, None)

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        self._write(logging.WARNING, kind, message, arguments, None)

    def error(self, kind: str, message: str, *arguments: object, cause: BaseException) -> None:
        """For a fault of the broker that a peer's request revealed: with the traceback."""
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
