"""One run of compaction over one log.

The first pass reads the dirty segments into the offset map, until they end or the map is full. The second
pass rewrites the log from its start to the end of the map, one group of segments at a time. A group is
swapped in when its new segment is on disk. Until then the run is invisible, so it can stop at any moment.

A full map may end inside a segment, and segments are rewritten whole. The records above the end of the map
stay, except those of aborted transactions. So both passes use the aborted transactions up to the end of the
last segment. Each entry of its transaction index is written again, or loses its records and its marker
together.

A run first syncs the log. A record supersedes an earlier one only when it is on disk, and a transaction is
decided only when its marker is. Otherwise a power failure could take the later record after compaction took
the earlier one.

The steps run on the loop. The work that they yield runs in a thread, in slices. It uses only its arguments:
open files, the map, the segment being written. After each slice the run checks that the log is unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from barnabas.core.limits import PRODUCERS_PER_TURN_MAX
from barnabas.core.steps import CourseSteps, Pause, Sliced, advance
from barnabas.storage.cleaner.batch_filter import BatchFilter, LastRecord
from barnabas.storage.cleaner.cleanable import LogToClean, group_segments
from barnabas.storage.cleaner.offset_map import OffsetMap, map_for
from barnabas.storage.cleaner.passes import CleanerStats, Source, map_segment, rewrite_segment
from barnabas.storage.cleaner.transactions import CleanedTransactions
from barnabas.storage.cleaner.writer import SegmentWriter
from barnabas.storage.files.environment import Environment
from barnabas.storage.files.pacing import Pace, Throttle
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_entry import ProducerEntry
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry

logger = logging.getLogger(__name__)

T = TypeVar("T")


class CleaningAborted(Exception):
    """The log has changed since the start of the run, or the cleaner stops."""


class OffsetMapTooSmall(Exception):
    """The offset map has no room for a single batch."""


@dataclass(slots=True)
class Tools:
    """Resources and limits of a run."""

    environment: Environment
    throttle: Throttle
    pace: Pace
    dedupe_buffer_bytes: int
    io_buffer_bytes: int
    load_factor: float
    on_progress: Callable[[int, int], None]
    """Called on the loop with the bytes read and written."""
    is_moving: Callable[[Log], bool] = lambda _: False
    """Whether the log is being copied to another log directory."""


@dataclass(slots=True)
class Cleaning:
    target: LogToClean
    tools: Tools
    stats: CleanerStats = field(default_factory=CleanerStats)
    end_offset: int = 0
    """Every record below is clean after the run."""
    is_stopped: bool = False

    def steps(self) -> CourseSteps[None]:
        target, tools, log = self.target, self.tools, self.target.log
        self.end_offset = target.first_dirty_offset
        if not target.cleanable_bytes:
            return
        logger.info(
            "partition %s: cleaning the log from offset %d", log.topic_partition, target.first_dirty_offset
        )
        check = _unchanged(log, self)
        yield from self._make_durable(check)
        offsets = map_for(
            target.first_dirty_offset,
            target.first_uncleanable_offset,
            buffer_bytes=tools.dedupe_buffer_bytes,
            load_factor=tools.load_factor,
        )
        try:
            yield from self._build_map(offsets, check)
            self.end_offset = offsets.latest_offset + 1
            self.stats.map_utilization = offsets.utilization
            yield from self._rewrite(offsets, check)
        finally:
            offsets.close()

    def _make_durable(self, check: Callable[[], None]) -> CourseSteps[None]:
        """Sync everything that decides which records the run removes."""
        log = self.target.log
        work = log.plan_flush()
        if work is not None:
            yield from _done(work, check)
            log.flush_completed(work)

    # --- first pass ---

    def _build_map(self, offsets: OffsetMap, check: Callable[[], None]) -> CourseSteps[None]:
        target, log = self.target, self.target.log
        first, end = target.first_dirty_offset, target.first_uncleanable_offset
        transactions = CleanedTransactions(_aborted_transactions(log, first, end))
        for segment in [each for each in log.segments.since(first) if each.base_offset < end]:
            _check_present(log, [segment])
            found = segment.find(first)
            position = segment.size_bytes if found is None else found.position
            source = Source.of(log, segment, self.tools.io_buffer_bytes, position)
            mapping = map_segment(source, offsets, transactions, first, self.stats, self.tools.pace)
            has_room = yield from self._slices(mapping, check)
            if not has_room:
                if offsets.latest_offset < first:
                    raise OffsetMapTooSmall(
                        f"the offset map holds {offsets.size_max} keys, fewer than one batch has;"
                        " raise log.cleaner.dedupe.buffer.size"
                    )
                return
            following = log.segments.following(segment)
            assert following is not None
            offsets.latest_offset = following.base_offset - 1

    # --- second pass ---

    def _rewrite(self, offsets: OffsetMap, check: Callable[[], None]) -> CourseSteps[None]:
        target, log = self.target, self.target.log
        clock = self.tools.environment.clock
        transactions = CleanedTransactions(_aborted_transactions(log, 0, target.first_uncleanable_offset))
        batch_filter = BatchFilter(
            offsets,
            transactions,
            now_ms=clock.now_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
            end_offset=target.first_uncleanable_offset,
            breathe=self.tools.pace.breathe,
        )
        segments = [segment for segment in log.segments if segment.base_offset < self.end_offset]
        if not segments:
            raise CleaningAborted("segments were deleted meanwhile")
        groups = group_segments(
            segments,
            target.first_uncleanable_offset,
            segment_bytes=log.config.segment_bytes,
            index_bytes=log.config.segment_index_bytes,
        )
        assert groups[-1][-1] is not log.segments.active
        for group in groups:
            yield from self._note_last_records(batch_filter, check)
            yield from self._clean_group(group, batch_filter, transactions, check)
        self.stats.without_key = batch_filter.without_key

    def _note_last_records(self, batch_filter: BatchFilter, check: Callable[[], None]) -> CourseSteps[None]:
        """Collect the last record of every producer; in a thread if there are many."""
        producers, breathe = self.target.log.producers, self.tools.pace.breathe
        if len(producers.producers) <= PRODUCERS_PER_TURN_MAX:
            batch_filter.last_records = _last_records(producers.producers.values(), lambda: None)
            return
        frozen = producers.freeze()

        def note() -> None:
            batch_filter.last_records = _last_records(frozen.entries, breathe)

        try:
            yield from _done(note, check)
        finally:
            frozen.thaw()

    def _clean_group(
        self,
        group: list[Segment],
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
        check: Callable[[], None],
    ) -> CourseSteps[None]:
        log, tools, files = self.target.log, self.tools, self.tools.environment.files
        writer = SegmentWriter(
            files,
            log.directory,
            group[0].base_offset,
            created_ms=group[0].created_ms,
            buffer_bytes=tools.io_buffer_bytes,
            index_interval_bytes=log.config.indexed_every_bytes,
        )
        try:
            writer.open()
            for segment in group:
                _check_present(log, group)
                source = Source.of(log, segment, tools.io_buffer_bytes)
                rewriting = rewrite_segment(
                    source, writer, batch_filter, transactions, self.stats, tools.pace
                )
                yield from self._slices(rewriting, check)
            yield from _done(writer.finish, check)
            _check_present(log, group)
        except Exception:
            # The files may be deleted with the log, or their names may belong to another log by now.
            if not (log.is_closed or self.is_stopped or log.log_directory.failure):
                yield writer.remove
            raise
        replaced = log.replace_segments(group, writer.segment)
        directory = log.directory
        yield lambda: files.sync_directory(directory)
        if not self.is_stopped:  # the next start removes the files that a stop leaves
            log.unlink_later(replaced)
        check()

    def _slices(self, work: Sliced[bool], check: Callable[[], None]) -> CourseSteps[bool]:
        """Run the work slice by slice in a thread; returns its result."""
        stats = self.stats
        while True:
            read_bytes, written_bytes = stats.read_bytes, stats.written_bytes
            ended = yield from _done(partial(advance, work), check)
            read_bytes, written_bytes = stats.read_bytes - read_bytes, stats.written_bytes - written_bytes
            self.tools.on_progress(read_bytes, written_bytes)
            delay_ms = self.tools.throttle.delay_ms_for(read_bytes + written_bytes)
            if delay_ms > 1:
                yield Pause(delay_ms)
                check()
            if ended is not None:
                return ended.result


def _last_records(entries: Iterable[ProducerEntry], breathe: Callable[[], None]) -> dict[int, LastRecord]:
    found = {}
    for number, entry in enumerate(entries):
        found[entry.producer_id] = LastRecord(entry.last_data_offset, entry.producer_epoch)
        if number % PRODUCERS_PER_TURN_MAX == 0:
            breathe()
    return found


def _done(work: Callable[[], T], check: Callable[[], None]) -> CourseSteps[T]:
    """Run the work in a thread. If it fails because the log has changed, raise CleaningAborted instead."""
    try:
        result: T = yield work
    except Exception:
        check()
        raise
    check()
    return result


def _check_present(log: Log, segments: list[Segment]) -> None:
    if any(log.segments.floor(segment.base_offset) is not segment for segment in segments):
        raise CleaningAborted("segments were deleted meanwhile")


def _unchanged(log: Log, cleaning: Cleaning) -> Callable[[], None]:
    """Make a check that raises CleaningAborted once the log differs from its current state."""
    generation, config, is_moving = log.flush_state.generation, log.config, cleaning.tools.is_moving

    def check() -> None:
        if cleaning.is_stopped:
            raise CleaningAborted("the cleaner stops")
        if log.is_closed or log.log_directory.failure is not None:
            raise CleaningAborted("the log was closed or deleted")
        if log.flush_state.generation != generation:
            raise CleaningAborted("the log was truncated")
        if is_moving(log):
            raise CleaningAborted("the log moves to another log directory")
        if log.config is not config and log.config != config:
            raise CleaningAborted("the topic's config has changed")

    return check


def _aborted_transactions(log: Log, start_offset: int, end_offset: int) -> list[AbortedTransactionEntry]:
    """Aborted transactions that overlap the range; their markers may be above it."""
    return [
        entry
        for segment in log.segments.since(start_offset)
        for entry in segment.transaction_index.entries
        if entry.first_offset < end_offset and entry.last_offset >= start_offset
    ]
