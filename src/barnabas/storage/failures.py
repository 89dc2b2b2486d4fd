"""How far an error reaches. Here it is decided, and nowhere else.

An error of the disk takes the log directory offline: nobody knows what the disk holds, so nothing is tried
again. Bytes that make no sense, though the disk gave them readily, put their log out of service alone. Want
of file descriptors is no failure of a disk: nothing was written, and it passes. So whoever asked is refused
and may ask again (`LogDirectory.fail` leaves the directory in service), and what nobody would ask for again
is tried until it is done (`directory.disk_errors`). Where neither can be, as at the start and at the end, the
directory goes offline after all (`LogDirectory.take_offline`): what could not be read, or was not written,
must not be taken for what is there.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import Enum
from typing import Final

from barnabas.storage.segment.batch_scan import GarbledLog

_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE})
RETRY_MS: Final = 100.0


class Reach(Enum):
    DIRECTORY = "directory"
    LOG = "log"
    REQUEST = "request"


def reach_of(error: BaseException) -> Reach:
    """What the error, or the one that it was made from, is a failure of."""
    # Compiled code does not note what an error was raised from, only what was being handled.
    made_from = error.__context__ if error.__cause__ is None else error.__cause__
    for each in (error, made_from):
        if isinstance(each, GarbledLog):
            return Reach.LOG
        if isinstance(each, OSError) and each.errno in _PASSING:
            return Reach.REQUEST
    return Reach.DIRECTORY


def unless_refused(work: Callable[[], None]) -> None:
    """Do what may as well be done later, and is left for now if no file can be opened."""
    try:
        work()
    except OSError as error:
        if reach_of(error) is not Reach.REQUEST:
            raise
