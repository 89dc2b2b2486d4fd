"""One run of compaction over one log.

First pass: the dirty segments, from the first dirty offset on, go into the offset map, until
they end or the map is full. Second pass: the log from its start to where the map ends is
rewritten, a group of segments at a time. A group is swapped in when its new segment is on
disk; until then nothing of the run can be seen, so it may be given up at any moment.

The steps below run on the loop; what they yield runs in a thread, in slices, and touches only
what is handed to it: open files, the map, the segment being written. After each slice the run
looks whether the log is still the one it began with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from barnabas.storage.cleaner.batch_filter import BatchFilter, LastRecord
from barnabas.storage.cleaner.cleanable import LogToClean, group_segments
from barnabas.storage.cleaner.course import Pause, Step, Steps
from barnabas.storage.cleaner.offset_map import OffsetMap, map_for
from barnabas.storage.cleaner.pacing import Pace, Throttle
from barnabas.storage.cleaner.passes import CleanerStats, Slices, Source, map_segment, rewrite_segment
from barnabas.storage.cleaner.transactions import CleanedTransactions
from barnabas.storage.cleaner.writer import SegmentWriter
from barnabas.storage.environment import Environment
from barnabas.storage.log.log import Log
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.transaction_index import AbortedTransactionEntry

_log = logging.getLogger(__name__)


class CleaningAborted(Exception):
    """The log is no longer what the run began with, or the cleaner stops."""


class OffsetMapTooSmall(Exception):
    """Not even one batch fits into the offset map."""


@dataclass(slots=True)
class Tools:
    """What a run works with."""

    environment: Environment
    throttle: Throttle
    pace: Pace
    dedupe_buffer_bytes: int
    io_buffer_bytes: int
    load_factor: float
    on_progress: Callable[[int, int], None]
    """Told on the loop how many bytes were read and written."""


@dataclass(slots=True)
class Cleaning:
    target: LogToClean
    tools: Tools
    stats: CleanerStats = field(default_factory=CleanerStats)
    end_offset: int = 0
    """Everything below is clean when the run has ended."""
    is_stopped: bool = False

    def steps(self) -> Steps:
        target, tools, log = self.target, self.tools, self.target.log
        self.end_offset = target.first_dirty_offset
        if not target.cleanable_bytes:
            return
        _log.info("compacting %s from %d", log.topic_partition, target.first_dirty_offset)
        check = _unchanged(log, self)
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

    # -- the first pass -----------------------------------------------------------------------

    def _build_map(self, offsets: OffsetMap, check: Callable[[], None]) -> Steps:
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
                    raise OffsetMapTooSmall(f"{offsets.size_max} keys are less than one batch has")
                return
            following = log.segments.following(segment)
            assert following is not None
            offsets.latest_offset = following.base_offset - 1

    # -- the second pass ----------------------------------------------------------------------

    def _rewrite(self, offsets: OffsetMap, check: Callable[[], None]) -> Steps:
        target, log = self.target, self.target.log
        clock = self.tools.environment.clock
        transactions = CleanedTransactions(_aborted_transactions(log, 0, self.end_offset))
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
            batch_filter.last_records = {
                entry.producer_id: LastRecord(entry.last_data_offset, entry.producer_epoch)
                for entry in log.active_producers()
            }
            yield from self._clean_group(group, batch_filter, transactions, check)
        self.stats.without_key = batch_filter.without_key

    def _clean_group(
        self,
        group: list[Segment],
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
        check: Callable[[], None],
    ) -> Steps:
        log, tools, files = self.target.log, self.tools, self.tools.environment.files
        writer = SegmentWriter(
            files,
            log.directory,
            group[0].base_offset,
            created_ms=group[0].created_ms,
            buffer_bytes=tools.io_buffer_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
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
            # The names may have gone away with the log, or belong to another log by now.
            if not (log.is_closed or self.is_stopped or log.log_directory.failure):
                yield writer.remove
            raise
        replaced = log.replace_segments(group, writer.segment)
        directory = log.directory
        yield lambda: files.sync_directory(directory)
        if not self.is_stopped:  # the next start removes what a stop leaves behind
            log.unlink_later(replaced)
        check()

    def _slices(self, work: Slices, check: Callable[[], None]) -> Generator[Step, None, bool]:
        """All of the work, a slice at a time; what it returns."""
        outcome: list[bool] = []

        def advance() -> None:
            try:
                next(work)
            except StopIteration as end:
                outcome.append(end.value)

        while not outcome:
            yield from self._slice(advance, check)
        return outcome[0]

    def _slice(self, advance: Callable[[], None], check: Callable[[], None]) -> Steps:
        stats = self.stats
        read_bytes, written_bytes = stats.read_bytes, stats.written_bytes
        yield from _done(advance, check)
        read_bytes, written_bytes = stats.read_bytes - read_bytes, stats.written_bytes - written_bytes
        self.tools.on_progress(read_bytes, written_bytes)
        delay_ms = self.tools.throttle.delay_ms_for(read_bytes + written_bytes)
        if delay_ms > 1:
            yield Pause(delay_ms)
            check()


def _done(work: Callable[[], None], check: Callable[[], None]) -> Steps:
    """Do the work; when it fails because the log has changed under it, it is the change that counts."""
    try:
        yield work
    except Exception:
        check()
        raise
    check()


def _check_present(log: Log, segments: list[Segment]) -> None:
    if any(log.segments.floor(segment.base_offset) is not segment for segment in segments):
        raise CleaningAborted("segments were deleted meanwhile")


def _unchanged(log: Log, cleaning: Cleaning) -> Callable[[], None]:
    """A check that raises CleaningAborted once the log differs from what it is now."""
    generation, config = log.flush_state.generation, log.config

    def check() -> None:
        if cleaning.is_stopped:
            raise CleaningAborted("the cleaner stops")
        if log.is_closed or log.log_directory.failure is not None:
            raise CleaningAborted("the log is gone")
        if log.flush_state.generation != generation:
            raise CleaningAborted("the log was truncated")
        if log.config is not config and log.config != config:
            raise CleaningAborted("its settings have changed")

    return check


def _aborted_transactions(log: Log, start_offset: int, end_offset: int) -> list[AbortedTransactionEntry]:
    """Those that overlap the range; their markers may lie behind it."""
    return [
        entry
        for segment in log.segments.since(start_offset)
        for entry in segment.transaction_index.entries
        if entry.first_offset < end_offset and entry.last_offset >= start_offset
    ]
