"""One fsync answers for many appends.

A log whose `flush.messages` is reached must not acknowledge before its records are on disk.
Syncing each append alone would make the disk the clock of every producer. Instead one sync
runs per log at a time, off the loop; whatever is appended meanwhile is answered by the next.
Under load each sync carries more appends, and nobody waits for more than two of them.

A flush for which there was no file descriptor, or no thread, is asked for again by nobody but us.
"""

import logging
from collections.abc import Callable

from barnabas.core.scheduler import Background, Scheduler
from barnabas.storage.failures import RETRY_MS, Reach, reach_of
from barnabas.storage.log.flush_state import FlushWork
from barnabas.storage.log.log import Log

_log = logging.getLogger(__name__)


class GroupCommit:
    def __init__(
        self,
        background: Background,
        on_flushed: Callable[[Log], None],
        scheduler: Scheduler | None = None,
    ) -> None:
        """Without a scheduler a flush that was refused is tried again when it is next asked for."""
        self._background = background
        self._on_flushed = on_flushed
        self._scheduler = scheduler
        self._running: set[Log] = set()
        self._again: set[Log] = set()
        self._refused: set[Log] = set()
        """To be tried again in a moment."""

    def request(self, log: Log) -> None:
        """Flush the log: now, or when the flush under way has ended."""
        if log in self._running:
            self._again.add(log)
            return
        if log in self._refused:
            return
        try:
            work = log.plan_flush()
        except OSError as error:
            self._failed(log, error)
            return
        if work is None:
            log.flush_completed(None)
            return
        self._running.add(log)
        try:
            self._background.submit(
                work,
                lambda done: self._flushed(log, done),
                lambda error: self._failed(log, error),
            )
        except RuntimeError as error:
            _log.warning("%s is flushed later: %s", log.topic_partition, error)
            self._running.discard(log)
            self._try_later(log)

    def _flushed(self, log: Log, work: FlushWork) -> None:
        self._running.discard(log)
        log.flush_completed(work)
        if log in self._again:
            self._again.discard(log)
            if not log.is_closed:
                self.request(log)
        self._on_flushed(log)

    def _failed(self, log: Log, error: BaseException) -> None:
        self._running.discard(log)
        self._again.discard(log)
        log.fail(error)
        if reach_of(error) is Reach.REQUEST:
            self._try_later(log)

    def _try_later(self, log: Log) -> None:
        if self._scheduler is not None and not log.is_closed:
            self._refused.add(log)
            self._scheduler.after(RETRY_MS, lambda: self._try_again(log))

    def _try_again(self, log: Log) -> None:
        self._refused.discard(log)
        if not log.is_closed:
            self.request(log)
