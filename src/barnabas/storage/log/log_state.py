"""What a log knows of itself, and what every part of it needs.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Offsets below the start are gone, those from the end on do not exist yet; consumers read to
the high watermark or to the last stable offset, followers to the end. The order above holds
at all times.

The log is built in layers, each one idea: this state, then flushing, segments, reading, and
on top appending (`log.Log`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock

from barnabas.config.log_config import LogConfig
from barnabas.core.errors import InconsistentTopicId, KafkaStorageError, OffsetOutOfRange
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.storage.directory.directory_properties import render_topic_id
from barnabas.storage.environment import Environment, LogDirectory
from barnabas.storage.log.flush import LogHome
from barnabas.storage.log.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.log.segments import Segments
from barnabas.storage.names import PARTITION_METADATA
from barnabas.storage.producers.producer_state import ProducerEntry, ProducerState

_log = logging.getLogger(__name__)


class LogState:
    """Made by `log_loader.open_log`; owned by the loop."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log_directory: LogDirectory,
        directory: str,
        config: LogConfig,
        environment: Environment,
        *,
        segments: Segments,
        producers: ProducerState,
        leader_epochs: LeaderEpochCache,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: Uuid | None = None,
        unsynced_paths: Iterable[str] = (),
        is_settled: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log_directory = log_directory
        self._home = LogHome(directory)
        self.leader_epochs = leader_epochs
        self.producers = producers
        self.segments = segments
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        """Everything below is on disk."""
        self.is_flush_due = False
        """`flush.messages` is reached: appends wait for the disk."""
        self.last_flush_ms = environment.clock.now_ms()
        self.is_closed = False
        self._environment = environment
        self._clock = environment.clock
        self._acknowledgeable = log_end_offset
        """While a flush is due: what was acknowledgeable before it became so."""
        self.generation = 0
        """Grows with each truncation: what was decided before one may not hold after it."""
        self._flush_lock = Lock()
        self._directory_changes = 1
        self._directory_changes_synced = 1 if is_settled else 0
        self._settled_offset = log_end_offset if is_settled else -1
        """The log end offset at which a clean shutdown left everything complete on disk."""
        self._pending_paths = list(unsynced_paths)
        """Derived files that the next flush must sync."""
        self.update_config(config)
        producers.high_watermark_advanced(self.high_watermark)

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._validation = config.validation_settings()
        self._index_interval_bytes = config.index_interval_bytes
        self._flush_messages = config.flush_messages
        self._segment_bytes = config.segment_bytes
        self._roll_after_ms = config.roll_after_ms
        self._segment_index_bytes = config.segment_index_bytes
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Remember the topic's id, in `partition.metadata` too; another one is refused."""
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            raise InconsistentTopicId(f"{self.topic_partition} has topic id {self.topic_id}, not {topic_id}")
        path = f"{self.directory}/{PARTITION_METADATA}"
        with self._guarded("writing the topic id"):
            self._environment.files.write(path, render_topic_id(topic_id))
        self._pending_paths.append(path)
        self.topic_id = topic_id

    @property
    def directory(self) -> str:
        return self._home.directory

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    # -- watermarks ---------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or ended above the high watermark."""
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: committed readers read to here."""
        first = self.producers.first_unstable_offset
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """A leader's way: it only grows. True when it did."""
        assert offset <= self.log_end_offset, "the high watermark cannot pass the end of the log"
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.high_watermark_advanced(offset)
        return True

    def update_high_watermark(self, offset: int) -> int:
        """A follower's way: set, within the log; returns what it became."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        self.producers.high_watermark_advanced(self.high_watermark)
        return self.high_watermark

    @property
    def durable_end_offset(self) -> int:
        """What may be acknowledged: the end of the log, or what is on disk while a flush is due."""
        if self.is_flush_due:
            return max(self.recovery_point, self._acknowledgeable)
        return self.log_end_offset

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Forget the records below `offset`; their segments go with the next retention run."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"the log start offset of {self.topic_partition} cannot become {offset}: that is beyond "
                f"the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        _log.info("log start offset of %s is now %d: %s", self.topic_partition, offset, reason)
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.log_start_offset_advanced(offset)
        return True

    # -- producers ----------------------------------------------------------------------------

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers.producers.values())

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int | None = None) -> bool:
        return self.producers.has_ongoing_transaction(producer_id, producer_epoch)

    def remove_expired_producers(self) -> None:
        self.producers.remove_expired(
            self._clock.now_ms(), self._environment.settings.producer_id_expiration_ms
        )

    # -- the files ----------------------------------------------------------------------------

    def release(self) -> None:
        """Close the files without writing anything."""
        self.is_closed = True
        for segment in self.segments:
            segment.release()

    def release_idle_segments(self) -> None:
        """Close the files of every segment that no longer grows; they open again when read."""
        for segment in self.segments:
            if segment is not self.segments.active:
                segment.release()

    def rename_to(self, directory: str) -> None:
        """Give the log's directory a new name (on its way to deletion, or moved); not durable."""
        self._home.rename_to(self._environment.files, directory)
        for segment in self.segments:
            segment.moved_to(directory)

    def fail(self, error: BaseException) -> None:
        """An I/O error: the whole directory goes offline.

        A log that is closed, perhaps deleted, has no files to speak for the directory."""
        if not self.is_closed:
            self.log_directory.fail(error)

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.fail(error)
            raise KafkaStorageError(f"{doing} of {self.topic_partition}: {error}") from error

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, start={self.log_start_offset}, "
            f"high_watermark={self.high_watermark}, end={self.log_end_offset})"
        )
