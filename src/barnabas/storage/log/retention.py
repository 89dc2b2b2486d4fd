"""Retention: deletion of old segments by log start offset, size and age.

`deletable_segments` decides and is pure. Segments are deleted from the oldest on, and only if every record is
below the high watermark. So the log start offset can never pass it. An empty active segment stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.config.log_config import LogConfig
from barnabas.storage.files.names import PRODUCER_SNAPSHOT
from barnabas.storage.log.log import Log
from barnabas.storage.segment.segment import Segment

Verdict = Callable[[Segment, Segment | None], bool]
"""Whether a segment has to be deleted, given the one that follows it."""


def delete_old_segments(log: Log, most: int | None = None) -> int:
    """Apply retention, to `most` segments; returns the number of deleted ones."""
    deleted = 0
    while deleted != most:
        with log.guarded("applying retention"):
            gone, reason = deletable_segments(
                list(log.segments),
                log.config,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                high_watermark=log.high_watermark,
                now_ms=log.environment.clock.now_ms(),
                most=None if most is None else most - deleted,
            )
        if not gone:
            return deleted
        if len(gone) == len(log.segments):
            if log.writing is not None:
                return deleted  # a thread writes into the segment, which must stay
            log.roll()
        following = log.segments.following(gone[-1])
        assert following is not None
        if not log.is_durable(following.path(PRODUCER_SNAPSHOT)):
            return deleted  # afterwards the snapshot alone holds the producer state
        log.maybe_increment_log_start_offset(following.base_offset, f"segments deleted by {reason}")
        log.delete_segments(gone)
        deleted += len(gone)
    return deleted


def is_past_retention(log: Log, retention_ms: int) -> bool:
    """Whether retention by age would delete segments if the whole log were below the high watermark."""
    first = log.segments.first
    return bool(first.size_bytes) and _time_breach(log.environment.clock.now_ms(), retention_ms)(first, None)


def deletable_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
    most: int | None = None,
) -> tuple[list[Segment], str]:
    """Segments to delete, the oldest ones, and the reason: the first one that applies to any."""
    verdicts: list[tuple[str, Verdict]] = [("log start offset", _start_offset_breach(log_start_offset))]
    if config.is_deleted:
        total_bytes = sum(segment.size_bytes for segment in segments)
        if 0 <= config.retention_bytes <= total_bytes:
            verdicts.append(("retention.bytes", _size_breach(total_bytes - config.retention_bytes)))
        if config.retention_ms >= 0:
            verdicts.append(("retention.ms", _time_breach(now_ms, config.retention_ms)))
    for reason, has_to_go in verdicts:
        found = _oldest_while(segments, has_to_go, log_end_offset, high_watermark, most)
        if found:
            return found, reason
    return [], ""


def _oldest_while(
    segments: Sequence[Segment],
    has_to_go: Verdict,
    log_end_offset: int,
    high_watermark: int,
    most: int | None,
) -> list[Segment]:
    found: list[Segment] = []
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        upper_offset = log_end_offset if following is None else following.base_offset
        if len(found) == most or (following is None and not segment.size_bytes):
            break
        if upper_offset > high_watermark or not has_to_go(segment, following):
            break
        found.append(segment)
    return found


def _start_offset_breach(log_start_offset: int) -> Verdict:
    return lambda _, following: following is not None and following.base_offset <= log_start_offset


def _size_breach(excess_bytes: int) -> Verdict:
    def has_to_go(segment: Segment, _: Segment | None) -> bool:
        nonlocal excess_bytes
        if segment.size_bytes > excess_bytes:
            return False
        excess_bytes -= segment.size_bytes
        return True

    return has_to_go


def _time_breach(now_ms: int, retention_ms: int) -> Verdict:
    return lambda segment, _: now_ms - segment.largest_timestamp > retention_ms
