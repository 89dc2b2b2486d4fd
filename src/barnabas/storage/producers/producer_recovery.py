"""Producer state from disk: the newest usable snapshot, then the batches behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.core.files import Files
from barnabas.records.batch import HEADER_BYTES, RecordBatch
from barnabas.storage.environment import Environment
from barnabas.storage.log.segments import Segments
from barnabas.storage.names import PRODUCER_SNAPSHOT, parse_segment_file, segment_path
from barnabas.storage.producers.producer_snapshot import CorruptSnapshot, parse_snapshot, render_snapshot
from barnabas.storage.producers.producer_state import CompletedTransaction, ProducerState
from barnabas.storage.segment.batch_scan import Header
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry

OnCompleted = Callable[[Segment, ProducerState, CompletedTransaction], None]

_log = logging.getLogger(__name__)


def record_aborted(segment: Segment, producers: ProducerState, completed: CompletedTransaction) -> None:
    """Enter the transaction into the index of its marker's segment, if it was aborted."""
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
    """The offsets of the snapshots among these file names, ascending."""
    parsed = (parse_segment_file(name) for name in names)
    return sorted(found[0] for found in parsed if found and found[1] == PRODUCER_SNAPSHOT)


def write_snapshot(files: Files, directory: str, state: ProducerState, offset: int) -> str:
    """Write the state at `offset`, up to which it is known; durable only after a flush. Returns the path."""
    state.skip_to(offset)
    path = segment_path(directory, offset, PRODUCER_SNAPSHOT)
    content = render_snapshot(state.producers.values())
    # Writing the same again would put what is durable already at risk.
    if not files.exists(path) or files.read(path) != content:
        files.write(path, content)
    return path


def remove_snapshots(files: Files, directory: str) -> None:
    for offset in snapshot_offsets(entry.name for entry in files.list(directory)):
        files.unlink(segment_path(directory, offset, PRODUCER_SNAPSHOT))


def load_newest_snapshot(
    environment: Environment, directory: str, offsets: Iterable[int], *, at_most: int, at_least: int
) -> ProducerState:
    """The state from the newest readable snapshot in the range; empty at `at_least` without one.

    Snapshots above the range describe what is no longer in the log and go, as do damaged ones."""
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
            _log.warning("removing the producer snapshot %s: %s", path, error)
            files.unlink(path)
            continue
        state = ProducerState(entries, end_offset=offset)
        state.remove_expired(environment.clock.now_ms(), environment.settings.producer_id_expiration_ms)
        return state
    return ProducerState(end_offset=at_least)


def replay(
    state: ProducerState,
    segments: Iterable[Segment],
    *,
    end_offset: int,
    on_completed: OnCompleted | None = None,
) -> None:
    """Bring the state up to `end_offset` with the batches of these segments.

    Only headers are read, but for markers, whose record says what became of the transaction."""
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
    environment: Environment, directory: str, segments: Segments, segment: Segment, offset: int
) -> ProducerState:
    """As the log will know them when it ends at `offset`, which lies in `segment`."""
    found = segment.find(offset)
    end_offset = offset if found is None else min(offset, found.base_offset)
    producers = load_newest_snapshot(
        environment,
        directory,
        snapshot_offsets(entry.name for entry in environment.files.list(directory)),
        at_most=end_offset,
        at_least=segments.first.base_offset,
    )
    replay(producers, segments.since(producers.end_offset), end_offset=end_offset)
    producers.skip_to(offset)
    return producers
