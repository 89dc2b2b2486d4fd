"""Producer snapshots of a log, and recovery from the newest readable one and the batches after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from barnabas.core.files import Files
from barnabas.core.limits import PRODUCERS_PER_TURN_MAX, UNWRITTEN_SNAPSHOTS_MAX
from barnabas.records.batch import HEADER_BYTES, RecordBatch
from barnabas.storage.files.environment import Environment
from barnabas.storage.files.log_path import LogPath
from barnabas.storage.files.names import PRODUCER_SNAPSHOT, parse_segment_file, segment_path
from barnabas.storage.files.pacing import Pace
from barnabas.storage.log.parts.flush_state import FlushState
from barnabas.storage.log.parts.segments import Segments
from barnabas.storage.producers.producer_snapshot import CorruptSnapshot, parse_snapshot, render_snapshot
from barnabas.storage.producers.producer_state import CompletedTransaction, ProducerState
from barnabas.storage.producers.unwritten_snapshot import UnwrittenSnapshot
from barnabas.storage.segment.batch_scan import Header
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry

OnCompleted = Callable[[Segment, ProducerState, CompletedTransaction], None]

logger = logging.getLogger(__name__)


def record_aborted(segment: Segment, producers: ProducerState, completed: CompletedTransaction) -> None:
    """Add an aborted transaction to the index of its marker's segment."""
    if completed.is_aborted:
        segment.transaction_index.append(
            AbortedTransactionEntry(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                producers.last_stable_offset_after(completed),
            )
        )


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Offsets of the snapshots among these file names, ascending."""
    parsed = (parse_segment_file(name) for name in names)
    return sorted(found[0] for found in parsed if found and found[1] == PRODUCER_SNAPSHOT)


def write_snapshot(files: Files, directory: str, state: ProducerState, offset: int) -> str:
    """Write the state at `offset`; durable only after a flush. Returns the path."""
    state.skip_to(offset)
    path = segment_path(directory, offset, PRODUCER_SNAPSHOT)
    content = render_snapshot(state.producers.values())
    # A second write of the same content would put a durable file at risk.
    if not files.exists(path) or files.read(path) != content:
        files.write(path, content)
    return path


def snapshot_producers(
    environment: Environment,
    log_path: LogPath,
    flush_state: FlushState,
    producers: ProducerState,
    offset: int,
) -> str:
    """Write the snapshot at the end of a log; the next flush writes a large one.

    Returns the path, which the next flush must sync."""
    unwritten = flush_state.unwritten_snapshots
    if offset in unwritten:
        return segment_path(log_path.directory, offset, PRODUCER_SNAPSHOT)
    # A slow disk must not fill the memory with frozen states.
    if len(producers.producers) <= PRODUCERS_PER_TURN_MAX or len(unwritten) >= UNWRITTEN_SNAPSHOTS_MAX:
        return write_snapshot(environment.files, log_path.directory, producers, offset)
    producers.skip_to(offset)
    breathe = Pace(environment.clock).breathe
    flush_state.write_with_flush(UnwrittenSnapshot(log_path, offset, producers.freeze(), breathe))
    return segment_path(log_path.directory, offset, PRODUCER_SNAPSHOT)


def remove_snapshots(files: Files, directory: str) -> None:
    for offset in snapshot_offsets(entry.name for entry in files.list(directory)):
        files.unlink(segment_path(directory, offset, PRODUCER_SNAPSHOT))


def load_newest_snapshot(
    environment: Environment, directory: str, offsets: Iterable[int], *, at_most: int, at_least: int
) -> ProducerState:
    """Load the newest readable snapshot in the range; an empty state at `at_least` without one.

    Snapshots above the range cover records that are no longer in the log. They are deleted, as damaged ones
    are."""
    files = environment.files
    for offset in sorted(offsets, reverse=True):
        path = segment_path(directory, offset, PRODUCER_SNAPSHOT)
        if offset > at_most:
            files.unlink(path)
            continue
        if offset < at_least:
            break
        try:
            entries = parse_snapshot(files.read(path))
        except CorruptSnapshot as error:
            logger.warning("deleting damaged producer snapshot %s: %s", path, error)
            files.unlink(path)
            continue
        state = ProducerState(entries, end_offset=offset)
        state.remove_expired(environment.clock.now_ms(), environment.config.producer_id_expiration_ms)
        return state
    return ProducerState(end_offset=at_least)


def replay(
    state: ProducerState,
    segments: Iterable[Segment],
    *,
    end_offset: int,
    on_completed: OnCompleted | None = None,
) -> None:
    """Apply the batches of these segments to the state, up to `end_offset`.

    Only headers are read, except for markers, whose record holds the outcome of the transaction."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        state.skip_to(segment.base_offset)
        start = segment.find(state.end_offset)
        if start is None:
            continue
        for header in segment.headers(start.position):
            if header.base_offset >= end_offset:
                break
            if header.magic == 2:
                _replay_batch(state, segment, header, on_completed)
            else:
                state.skip_to(header.last_offset + 1)
    state.skip_to(end_offset)


def _replay_batch(
    state: ProducerState, segment: Segment, header: Header, on_completed: OnCompleted | None
) -> None:
    batch = RecordBatch(segment.file.read_at(header.position, HEADER_BYTES))
    if batch.is_control and batch.has_producer_id:
        batch = RecordBatch(segment.file.read_at(header.position, header.size_bytes))
    completed = state.apply(batch, batch.base_offset)
    if completed is not None:
        if on_completed is not None:
            on_completed(segment, state, completed)
        state.complete(completed)


def producers_at(
    environment: Environment,
    directory: str,
    segments: Segments,
    segment: Segment,
    offset: int,
    *,
    unwritten: Collection[int] = (),
) -> ProducerState:
    """Producer state of a log that is about to end at `offset`, which is in `segment`.

    A thread may be writing the snapshots at the `unwritten` offsets."""
    found = segment.find(offset)
    end_offset = offset if found is None else min(offset, found.base_offset)
    producers = load_newest_snapshot(
        environment,
        directory,
        [
            found
            for found in snapshot_offsets(entry.name for entry in environment.files.list(directory))
            if found not in unwritten
        ],
        at_most=end_offset,
        at_least=segments.first.base_offset,
    )
    replay(producers, segments.since(producers.end_offset), end_offset=end_offset)
    producers.skip_to(offset)
    return producers
