"""Environment of a log: files, clock, randomness, scheduler, threads and broker configuration, passed in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.files import Files
from barnabas.core.ids import Randomness
from barnabas.core.limits import WRITES_PER_DIRECTORY_MAX, WRITTEN_ELSEWHERE_BYTES_MIN
from barnabas.core.scheduler import Background, BoundedBackground, Scheduler
from barnabas.storage.files.failures import Reach, reach_of
from barnabas.storage.files.open_files import OpenFiles

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogDirectory:
    """One of the broker's log directories.

    A failed directory stays offline until the next start. After an I/O error the content of the disk is
    unknown, so the broker does not try again."""

    path: str
    failure: BaseException | None = None
    when_failed: list[Callable[[LogDirectory], None]] = field(default_factory=list)
    checkpoint_lock: Lock = field(default_factory=Lock)
    checkpoints_planned: int = 0
    checkpoints_written: dict[str, int] = field(default_factory=dict)
    """Newest version on disk of each checkpoint file."""
    unwritten_bytes: int = 0
    """Bytes of large appends that a thread is writing, or that are queued for one."""

    def fail(self, error: BaseException) -> None:
        """Report an I/O error. The directory goes offline if the disk failed."""
        if self.failure is None and reach_of(error) is Reach.REQUEST:
            logger.error(
                "log directory %s: cannot open a file: %s. Raise the limit of open files", self.path, error
            )
        else:
            self.take_offline(error)

    def take_offline(self, error: BaseException) -> None:
        """Mark the directory as failed. The first call runs the callbacks in `when_failed`."""
        if self.failure is not None:
            return
        self.failure = error
        logger.error("log directory %s goes offline: %s", self.path, error)
        for callback in self.when_failed:
            callback(self)


@dataclass(slots=True)
class Environment:
    files: Files
    clock: Clock
    randomness: Randomness
    scheduler: Scheduler
    background: Background
    config: BrokerConfig
    written_elsewhere_bytes_min: int = WRITTEN_ELSEWHERE_BYTES_MIN
    open_files: OpenFiles = field(default_factory=OpenFiles)
    _writers: dict[str, BoundedBackground] = field(default_factory=dict)

    def writers(self, directory: LogDirectory) -> Background:
        """Threads that write to this directory. There are few, so that a disk that hangs cannot block all."""
        found = self._writers.get(directory.path)
        if found is None:
            found = self._writers[directory.path] = BoundedBackground(
                self.background, WRITES_PER_DIRECTORY_MAX
            )
        return found
