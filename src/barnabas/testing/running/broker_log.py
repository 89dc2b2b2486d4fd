"""Log of a test's broker: its last lines, which pytest shows with a failed test.

Several brokers share a process, and each has a thread. So a line belongs to the broker on whose thread it was
written. Brokers log at INFO here. The test's own handlers see no more than before: a line reaches them only
if the root logger lets its level pass.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Final

KEPT_LINES_MAX: Final = 2_000
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class BrokerLog:
    """Last lines of one broker, written on any of its threads in turn."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES_MAX)

    def lines(self) -> list[str]:
        return list(self._lines)

    def add(self, line: str) -> None:
        self._lines.append(line)


class _Router(logging.Handler):
    """Hands each line to the log of its thread, and to the root logger's handlers."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(logging.Formatter(_FORMAT))
        self.logs: dict[int, BrokerLog | None] = {}
        """Logs by thread; None for a thread that is muted."""

    def emit(self, record: logging.LogRecord) -> None:
        thread = threading.get_ident()  # a record has no thread where a command turned that off
        log = self.logs.get(thread)
        if log is None and thread in self.logs:
            return
        if log is not None:
            try:
                log.add(self.format(record))
            except Exception:  # noqa: BLE001 - as every handler of logging
                self.handleError(record)
        if record.levelno >= logging.getLogger().getEffectiveLevel():
            _pass_on(record)


def _pass_on(record: logging.LogRecord) -> None:
    """Give a line to the handlers of the root logger. pytest has its own on every logger that does not
    propagate, and those have the line already."""
    own = logging.getLogger("barnabas").handlers
    handlers: list[logging.Handler | None] = [*logging.getLogger().handlers]
    for each in handlers or [logging.lastResort]:
        if each is not None and each not in own and record.levelno >= each.level:
            each.handle(record)


_lock = threading.Lock()
_router: _Router | None = None
_before: tuple[int, bool] = logging.NOTSET, True


def begin(log: BrokerLog) -> None:
    """Collect the lines of this thread in `log`, until `end`."""
    global _router, _before
    top = logging.getLogger("barnabas")
    with _lock:
        if _router is None:
            _router, _before = _Router(), (top.level, top.propagate)
            top.addHandler(_router)
            top.propagate = False
            if top.getEffectiveLevel() > logging.INFO:
                top.setLevel(logging.INFO)
        _router.logs[threading.get_ident()] = log


def mute(thread: int) -> None:
    """Drop the lines of a thread from now on: a broker that was killed says nothing."""
    with _lock:
        if _router is not None and thread in _router.logs:
            _router.logs[thread] = None


def end() -> None:
    """Collect no more of this thread. The last one restores the settings of logging."""
    global _router  # noqa: PLW0603 - logging is one per process
    top = logging.getLogger("barnabas")
    with _lock:
        if _router is None:
            return
        _router.logs.pop(threading.get_ident(), None)
        if not _router.logs:
            top.removeHandler(_router)
            top.setLevel(_before[0])
            top.propagate = _before[1]
            _router = None
