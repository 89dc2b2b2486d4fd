"""Reach of an I/O error: it concerns a log directory, one log, or one request. Only this module decides.

- An error of the disk takes the log directory offline. The content of the disk is unknown, so the broker does
  not try again.
- A failed read takes only its log out of service: a bad sector proves nothing about other files. The same
  holds for bytes that are not a batch, although the disk returned them without an error.
- A shortage of file descriptors is not a failure of the disk: no byte was written, and the shortage passes.
  The request is refused and the client may retry (`LogDirectory.fail` leaves the directory in service).
  Background work, which no client retries, is repeated until it succeeds (`directory.disk_errors`).
- At the start and at the end neither is possible, so a shortage takes the directory offline
  (`LogDirectory.take_offline`). Data that was not read or not written must not count as present.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import Enum
from typing import Final

from barnabas.core.scheduler import NotBegun

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE})
RETRY_MS: Final = 100.0


class GarbledLog(Exception):
    """The log has no valid batch at a position where one must start."""


class Reach(Enum):
    DIRECTORY = "directory"
    LOG = "log"
    REQUEST = "request"


def reach_of(error: BaseException) -> Reach:
    """Classify an error, or its cause."""
    # Compiled code does not set `__cause__`, only `__context__`.
    made_from = error.__context__ if error.__cause__ is None else error.__cause__
    for each in (error, made_from):
        if isinstance(each, GarbledLog):
            return Reach.LOG
        if isinstance(each, NotBegun) or (isinstance(each, OSError) and each.errno in _PASSING):
            return Reach.REQUEST
    return Reach.DIRECTORY


def unless_refused(work: Callable[[], None]) -> None:
    """Do work that can also be done later; skip it while no file can be opened."""
    try:
        work()
    except OSError as error:
        if reach_of(error) is not Reach.REQUEST:
            raise
