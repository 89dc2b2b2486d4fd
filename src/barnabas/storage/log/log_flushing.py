"""The layer that knows what is on disk.

Everything below the recovery point is. What is above may be lost, so while the topic asks
for a flush (`flush.messages`) it is not acknowledged: `durable_end_offset` holds back. A
flush is planned here, on the loop, and done anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from barnabas.storage.log.flush import FlushWork
from barnabas.storage.log.log_state import LogState
from barnabas.storage.names import LEADER_EPOCHS
from barnabas.storage.producers import producer_recovery

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


class FlushingLog(LogState):
    request_flush: Callable[[Log], None] | None = None
    """Called when a flush becomes due, or a segment was closed; without it we flush at once."""

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    def plan_flush(self) -> FlushWork | None:
        """What must be synced; None when everything is on disk already."""
        epochs = self.leader_epochs
        is_directory_changed = self._directory_changes != self._directory_changes_synced
        if self.log_end_offset <= self.recovery_point and not (is_directory_changed or epochs.is_dirty):
            return None
        return FlushWork(
            self._environment.files,
            self._home,
            self._flush_lock,
            target_offset=self.log_end_offset,
            generation=self.generation,
            data_files=[segment.file for segment in self.segments.since(self.recovery_point)],
            derived_paths=list(self._pending_paths),
            epochs_version=epochs.version,
            epochs_content=epochs.render() if epochs.is_dirty else None,
            directory_changes=self._directory_changes,
            is_directory_changed=is_directory_changed,
            is_new=self._directory_changes_synced == 0,
        )

    def write_epochs_soon(self) -> None:
        """Bring the epoch file up to date, off the loop, without forcing records to disk."""
        epochs, files = self.leader_epochs, self._environment.files
        version, content, lock = epochs.version, epochs.render(), self._flush_lock
        home = self._home

        def write() -> None:
            with lock:
                home.replace(files, LEADER_EPOCHS, content)

        self._environment.background.submit(write, lambda _: epochs.written(version), self.fail)

    def flush_completed(self, work: FlushWork | None) -> None:
        """The work is done: the recovery point moves, and acknowledgements may leave."""
        if work is not None:
            if work.generation == self.generation:
                self.recovery_point = max(self.recovery_point, work.target_offset)
            synced = set(work.derived_paths)
            self._pending_paths = [path for path in self._pending_paths if path not in synced]
            self._directory_changes_synced = max(self._directory_changes_synced, work.directory_changes)
            if work.epochs_content is not None:
                self.leader_epochs.written(work.epochs_version)
        self.last_flush_ms = self._clock.now_ms()
        self._acknowledgeable = max(self._acknowledgeable, self.recovery_point)
        self.is_flush_due = self.unflushed_messages >= self._flush_messages

    def flush(self) -> None:
        """Force everything to disk, here and now."""
        work = self.plan_flush()
        if work is not None:
            with self._guarded("flushing"):
                work()
        self.flush_completed(work)

    def _flush_soon(self) -> None:
        if self.request_flush is not None:
            self.request_flush(cast("Log", self))
        else:
            self.flush()

    def close(self) -> None:
        """Flush, complete the indexes, write the producer snapshot. The next start trusts all of it."""
        work = self.plan_close()
        if work is not None:
            with self._guarded("closing"):
                work()
            self.flush_completed(work)
        self.release()

    def plan_close(self) -> FlushWork | None:
        """What is left to be synced; None for a log that is as the last clean shutdown left it."""
        if self.is_closed or self.log_directory.failure is not None:
            return None
        if self._settled_offset == self.log_end_offset and self.plan_flush() is None:
            return None
        active = self.segments.active
        with self._guarded("closing"):
            active.seal()
            self.producers.end_offset = self.log_end_offset
            self._pending_paths.extend(active.existing_paths()[1:])
            self._pending_paths.append(
                producer_recovery.write_snapshot(self._environment, self.directory, self.producers)
            )
            self._directory_changes += 1
        return self.plan_flush()
