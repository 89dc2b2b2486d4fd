"""Group commit: one fsync for many appends.

A log whose `flush.messages` is reached must not acknowledge before its records are on disk. A sync for each
append would make the disk the clock of every producer. Instead one sync runs per log at a time, in a thread,
and the next sync covers all appends that arrive meanwhile. Under load each sync carries more appends, and no
producer waits for more than two of them.

A flush that finds no file descriptor or no thread is retried here: no append would request it again. A flush
that a truncation overtakes is repeated for the same reason: its outcome is void, and the log is still due.
"""

import logging
from collections.abc import Callable

from barnabas.core.scheduler import Background, Scheduler
from barnabas.storage.files.failures import RETRY_MS, Reach, reach_of
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.flush_state import FlushWork

logger = logging.getLogger(__name__)


class GroupCommit:
    def __init__(
        self,
        background: Background,
        on_flushed: Callable[[Log], None],
        scheduler: Scheduler,
    ) -> None:
        self._background = background
        self._on_flushed = on_flushed
        self._scheduler = scheduler
        self._running: set[Log] = set()
        self._again: set[Log] = set()
        self._refused: set[Log] = set()
        """Logs whose flush is retried after a short delay."""

    def request(self, log: Log) -> None:
        """Flush the log, now or after the flush in progress."""
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
            self._on_flushed(log)
            return
        self._running.add(log)
        try:
            self._background.submit(
                work,
                lambda done: self._flushed(log, done),
                lambda error: self._failed(log, error),
            )
        except RuntimeError as error:
            logger.warning("partition %s: flush is delayed: %s", log.topic_partition, error)
            self._running.discard(log)
            self._try_later(log)

    def _flushed(self, log: Log, work: FlushWork) -> None:
        self._running.discard(log)
        log.flush_completed(work)
        is_wanted = log in self._again or log.flush_state.is_due
        self._again.discard(log)
        if is_wanted and not log.is_closed:
            self.request(log)
        self._on_flushed(log)

    def _failed(self, log: Log, error: BaseException) -> None:
        self._running.discard(log)
        self._again.discard(log)
        log.fail(error)
        if reach_of(error) is Reach.REQUEST:
            self._try_later(log)

    def _try_later(self, log: Log) -> None:
        if not log.is_closed:
            self._refused.add(log)
            self._scheduler.after(RETRY_MS, lambda: self._try_again(log))

    def _try_again(self, log: Log) -> None:
        self._refused.discard(log)
        if not log.is_closed:
            self.request(log)
