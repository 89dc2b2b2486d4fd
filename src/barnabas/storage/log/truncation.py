"""Cutting a log: everything from an offset on goes, and all parts of the log agree on its new end.

A truncation must be on disk before anything is written in the place of what is gone (`CutWork`). It is on
return, or, where somebody else syncs many at once (`FlushState.unsynced_cut`), before the next record is
written at the latest.
"""

from __future__ import annotations

from barnabas.storage.log.flush_state import CutWork
from barnabas.storage.log.log import Log
from barnabas.storage.log.segments import new_segment
from barnabas.storage.names import LEADER_EPOCHS
from barnabas.storage.producers.producer_recovery import producers_at, remove_snapshots
from barnabas.storage.producers.producer_state import ProducerState


def truncate_to(log: Log, offset: int, *, is_sync_deferred: bool = False) -> bool:
    """Remove the records from `offset` on; True when there were any."""
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
        # First what has to be read and opened: it may be refused. Then all that changes.
        end_position = target.prepare_cut(offset)
        producers = producers_at(log.environment, log.directory, log.segments, target, offset)
        beyond = log.segments.behind(offset)
        cut = CutWork(log.environment.files, target.file, log.directory if beyond else None)
        if beyond:
            log.delete_segments(beyond[::-1])  # the newest first: who is interrupted leaves no hole
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
    """Throw everything away; the next append gets `offset`."""
    log.settle()
    files = log.environment.files
    log.leader_epochs.clear()
    with log.guarded("truncating"):
        log.segments.start_over(new_segment(log.environment, log.directory, offset, log.config))
        remove_snapshots(files, log.directory)
        # Old epochs would claim offsets that they never had; replacing syncs the directory too.
        files.replace(f"{log.directory}/{LEADER_EPOCHS}", log.leader_epochs.render())
    log.flush_state.restarted(offset)
    log.watermarks.restarted(offset if log_start_offset is None else log_start_offset, offset, offset)
    log.replace_producers(ProducerState(end_offset=offset))
