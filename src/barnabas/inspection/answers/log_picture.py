"""Picture of one partition's log, as its leader sees it: segments, indexes, epochs, watermarks, followers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from barnabas.core.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.core.ids import NO_OFFSET, TopicPartition
from barnabas.core.steps import Sliced
from barnabas.inspection.answers.topics import led_partition
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.parameters import number, text
from barnabas.inspection.wire import Question
from barnabas.replication.partition.partition import Partition
from barnabas.security.acl.vocabulary import ResourceType
from barnabas.storage.files.failures import GarbledLog
from barnabas.storage.log.log import Log
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.sparse_index import CorruptIndex

SEGMENTS_MAX: Final = 1_000
"""The newest ones; a log of more is not drawn whole."""
ENTRIES_MAX: Final = 100
ALL_ENTRIES_MAX: Final = 2_000
"""Entries of an offset index, and of all indexes of the picture."""
ABORTED_MAX: Final = 100
TRANSACTIONS_MAX: Final = 1_000
EPOCHS_MAX: Final = 1_000
Row = dict[str, Any]


def log_picture(inspected: Inspected, question: Question) -> Sliced[Row]:
    topic, partition = text(question, "topic"), number(question, "partition")
    inspected.viewer(question).require(ResourceType.TOPIC, topic)
    if inspected.broker.metadata.partition(topic, partition) is None:
        raise UnknownTopicOrPartition(f"the partition {topic}-{partition} does not exist")
    led = led_partition(inspected, TopicPartition(topic, partition))
    if led is None:
        raise NotLeaderOrFollower(f"broker {inspected.broker.broker_id} does not lead {topic}-{partition}")
    log = led.log
    with log.guarded_read("describing the log"):
        segments = yield from _segments(log)
        aborted = yield from _aborted(log)
    return {
        "topic": topic,
        "partition": partition,
        "leader_id": inspected.broker.broker_id,
        "leader_epoch": led.leadership.leader_epoch,
        "start_offset": log.log_start_offset,
        "last_stable_offset": log.last_stable_offset,
        "high_watermark": log.high_watermark,
        "end_offset": log.log_end_offset,
        "recovery_point": log.flush_state.recovery_point,
        "size_bytes": log.segments.size_bytes,
        "segments": segments,
        "epochs": [
            {"epoch": epoch, "start_offset": start}
            for epoch, start in log.leader_epochs.entries[-EPOCHS_MAX:]
        ],
        "followers": _followers(inspected, led),
        "open_transactions": list(_open_transactions(log)),
        "aborted_transactions": aborted,
    }


def _segments(log: Log) -> Sliced[list[Row]]:
    newest = list(log.segments)[-SEGMENTS_MAX:]
    entries_max = max(2, min(ENTRIES_MAX, ALL_ENTRIES_MAX // len(newest)))
    ends = [each.base_offset for each in newest[1:]] + [log.log_end_offset]
    rows = []
    for segment, end in zip(newest, ends, strict=True):
        entries: list[tuple[int, int]] = []
        try:
            for entry in _some_entries(segment, entries_max):
                entries.append(entry)
                yield
        except (CorruptIndex, GarbledLog):
            entries = []  # the next search rebuilds the index
        rows.append(
            {
                "base_offset": segment.base_offset,
                "next_offset": end,
                "size_bytes": segment.size_bytes,
                "index_bytes": segment.offset_index.size_bytes,
                "time_index_bytes": segment.time_index.size_bytes,
                "transaction_index_bytes": _transaction_index_bytes(segment),
                "first_timestamp_ms": _time(segment.first_timestamp),
                "largest_timestamp_ms": _time(segment.max_timestamp),
                "is_active": segment is log.segments.active,
                "index_entries": entries,
            }
        )
        yield
    return rows


def _some_entries(segment: Segment, most: int) -> Iterator[tuple[int, int]]:
    """Entries of the offset index, evenly chosen."""
    index = segment.offset_index
    count = len(index)
    step = max(1, math.ceil(count / most))
    for slot in range(0, count, step):
        if slot < len(index):  # it may have been cut meanwhile
            yield index.entry_at(slot)


def _aborted(log: Log) -> Sliced[list[tuple[int, int, int]]]:
    """The newest aborted transactions."""
    found: list[tuple[int, int, int]] = []
    for segment in reversed(list(log.segments)):
        for entry in reversed(segment.transaction_index.entries):
            found.append((entry.producer_id, entry.first_offset, entry.last_offset))
            if len(found) == ABORTED_MAX:
                return found
        yield
    return found


def _transaction_index_bytes(segment: Segment) -> int:
    return segment.transaction_index.size_bytes


def _open_transactions(log: Log) -> Iterator[tuple[int, int]]:
    for count, (first_offset, producer_id) in enumerate(log.producers.ongoing_transactions()):
        if count == TRANSACTIONS_MAX:
            return
        yield producer_id, first_offset


def _followers(inspected: Inspected, led: Partition) -> list[Row]:
    clock = inspected.broker.clock
    since_epoch_ms = clock.now_ms() - clock.monotonic_ms()
    rows = []
    for replica in led.leadership.replicas:
        follower = led.followers.get(replica)
        if follower is not None:
            end_offset = follower.end_offset
            caught_up_ms = follower.last_caught_up_ms
            rows.append(
                {
                    "broker_id": replica,
                    "end_offset": None if end_offset == NO_OFFSET else end_offset,
                    "is_in_sync": replica in led.leadership.isr,
                    "caught_up_ms": None
                    if math.isinf(caught_up_ms)
                    else round(since_epoch_ms + caught_up_ms),
                }
            )
    return rows


def _time(timestamp: int) -> int | None:
    return None if timestamp < 0 else timestamp
