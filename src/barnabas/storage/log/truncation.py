"""Truncation of a log: it removes all records from an offset on, in every part of the log.

A truncation must be on disk before new records overwrite the removed ones (`CutWork`). It is on disk on
return. Where the caller syncs many logs at once (`FlushState.unsynced_cut`), it is on disk before the next
append at the latest.
"""

from __future__ import annotations

from barnabas.core.ids import NO_OFFSET
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.flush_state import CutWork
from barnabas.storage.log.parts.segments import new_segment
from barnabas.storage.log.producer_recovery import producers_at, remove_snapshots
from barnabas.storage.producers.producer_state import ProducerState


def truncate_to(log: Log, offset: int, *, is_sync_deferred: bool = False) -> bool:
    """Remove the records from `offset` on; True if there were any."""
    log.settle()
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments.first.base_offset:
        truncate_fully_and_start_at(log, offset)
        return True
    target = log.segments.floor(offset)
    assert target is not None
    with log.guarded("truncating"):
        # Reads and opens come first, because they may be refused. Then the changes.
        end_position = target.prepare_cut(offset)
        producers = producers_at(
            log.environment,
            log.directory,
            log.segments,
            target,
            offset,
            unwritten=log.flush_state.unwritten_snapshots,
        )
        log.flush_state.cancel_snapshots(beyond=offset)
        beyond = log.segments.behind(offset)
        cut = CutWork(log.environment.files, target.file, log.directory if beyond else None)
        if beyond:
            log.delete_segments(beyond[::-1])  # the newest first: a crash leaves no gap
        log.flush_state.cut(cut)
        target.truncate_to(offset, end_position)
    log.flush_state.truncated(offset)
    log.watermarks.truncated(offset)
    log.leader_epochs.truncate_from_end(offset)
    log.replace_producers(producers)
    if not is_sync_deferred:
        log.sync_cut()
    return True


def truncate_fully_and_start_at(log: Log, offset: int, log_start_offset: int | None = None) -> None:
    """Remove all records; the next append gets `offset`."""
    log.settle()
    files = log.environment.files
    log.leader_epochs.clear()
    with log.guarded("truncating"):
        log.segments.start_over(new_segment(log.environment, log.directory, offset, log.config))
        log.flush_state.cancel_snapshots(beyond=NO_OFFSET)
        remove_snapshots(files, log.directory)
        # Old epochs would cover offsets that they never had; the replacement syncs the directory too.
        log.flush_state.replace_epochs(log.leader_epochs.render())
    log.flush_state.restarted(offset)
    log.watermarks.restarted(offset if log_start_offset is None else log_start_offset, offset, offset)
    log.replace_producers(ProducerState(end_offset=offset))
