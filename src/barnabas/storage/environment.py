"""What a log needs from outside, handed in once."""

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
from barnabas.storage.failures import Reach, reach_of

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LogDirectory:
    """One of the broker's log directories. A failed one stays failed until the next start:
    after an I/O error nobody knows what the disk holds, so nothing is tried again."""

    path: str
    failure: BaseException | None = None
    when_failed: list[Callable[[LogDirectory], None]] = field(default_factory=list)
    checkpoint_lock: Lock = field(default_factory=Lock)
    checkpoints_planned: int = 0
    checkpoints_written: dict[str, int] = field(default_factory=dict)
    """The newest version of each checkpoint file that is on disk."""
    unwritten_bytes: int = 0
    """Of large appends that are being written, or wait for that."""

    def fail(self, error: BaseException) -> None:
        """Something could not be done: the directory goes offline if it is the disk that failed."""
        if self.failure is None and reach_of(error) is Reach.REQUEST:
            _log.error("no file could be opened in %s: %s", self.path, error)
        else:
            self.take_offline(error)

    def take_offline(self, error: BaseException) -> None:
        """The first call tells everyone."""
        if self.failure is not None:
            return
        self.failure = error
        _log.error("log directory %s goes offline: %s", self.path, error)
        for tell in self.when_failed:
            tell(self)


@dataclass(slots=True)
class Environment:
    files: Files
    clock: Clock
    randomness: Randomness
    scheduler: Scheduler
    background: Background
    settings: BrokerConfig = field(default_factory=lambda: BrokerConfig.load({}))
    written_elsewhere_bytes_min: int = WRITTEN_ELSEWHERE_BYTES_MIN
    _writers: dict[str, BoundedBackground] = field(default_factory=dict)

    def writers(self, directory: LogDirectory) -> Background:
        """The threads that write to this directory: few, so that a disk that hangs does not take them all."""
        found = self._writers.get(directory.path)
        if found is None:
            found = self._writers[directory.path] = BoundedBackground(
                self.background, WRITES_PER_DIRECTORY_MAX
            )
        return found
