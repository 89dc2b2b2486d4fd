"""Cleanable range of a log, and its dirty ratio. Pure.

    log start      first dirty offset        first uncleanable offset
        |  clean          |     dirty, cleanable      |     not yet      |

An earlier run has compacted the clean part. Compaction works on whole segments. It leaves out the active
segment, segments above the last stable offset, and segments with records younger than
`min.compaction.lag.ms`. Records older than `max.compaction.lag.ms` are due at any dirty ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.storage.log.log import Log
from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX
from barnabas.storage.segment.segment import Segment


class LogToClean(NamedTuple):
    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Whether there are dirty records older than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if not self.cleanable_bytes:
            return False
        return self.is_overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def log_to_clean(log: Log, checkpointed_offset: int | None, now_ms: int) -> LogToClean:
    """Find the cleanable range. An impossible `checkpointed_offset` (end of the last run) is ignored."""
    first_dirty_offset = log.log_start_offset
    if checkpointed_offset is not None and first_dirty_offset < checkpointed_offset <= log.log_end_offset:
        first_dirty_offset = checkpointed_offset
    limit_offset = log.last_stable_offset
    min_lag_ms = log.config.min_compaction_lag_ms
    cleanable_end = clean_bytes = cleanable_bytes = 0
    is_overdue = False
    for segment, following in pairwise(log.segments):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        if end_offset > limit_offset:
            break
        if is_dirty and min_lag_ms > 0 and segment.largest_timestamp > now_ms - min_lag_ms:
            break
        cleanable_end = end_offset
        if is_dirty:
            cleanable_bytes += segment.size_bytes
            is_overdue = is_overdue or _is_overdue(segment, log.config.max_compaction_lag_ms, now_ms)
        else:
            clean_bytes += segment.size_bytes
    return LogToClean(
        log,
        first_dirty_offset,
        max(cleanable_end, first_dirty_offset),
        clean_bytes,
        cleanable_bytes,
        is_overdue,
    )


def _is_overdue(segment: Segment, max_lag_ms: int, now_ms: int) -> bool:
    due_ms = now_ms - max_lag_ms
    return due_ms > 0 and segment.size_bytes > 0 and 0 < segment.first_timestamp < due_ms


def group_segments(
    segments: Sequence[Segment], end_offset: int, *, segment_bytes: int, index_bytes: int
) -> list[list[Segment]]:
    """Group neighbours that fit into one segment even if compaction removes nothing."""
    groups: list[list[Segment]] = []
    following = [*(segment.base_offset for segment in segments[1:]), end_offset]
    sizes = [0, 0, 0]
    for segment, next_offset in zip(segments, following, strict=True):
        own = [segment.size_bytes, segment.offset_index.size_bytes, segment.time_index.size_bytes]
        together = [one + other for one, other in zip(sizes, own, strict=True)]
        fits = (
            groups
            and together[0] <= segment_bytes
            and max(together[1:]) <= index_bytes
            and (not segment.size_bytes or next_offset - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        )
        if fits:
            groups[-1].append(segment)
            sizes = together
        else:
            groups.append([segment])
            sizes = own
    return groups
