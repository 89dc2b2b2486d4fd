"""Support for storage tests: an environment with manual time, and batches to append."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.core.files import Files, RealFiles
from barnabas.core.ids import TopicPartition
from barnabas.core.scheduler import InlineBackground
from barnabas.records.batch import RecordBatch, iterate_batches
from barnabas.records.builder import build_batch, build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.loading.log_loader import open_log
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.append import AppendInfo
from barnabas.storage.producers.append_checks import AppendOrigin
from barnabas.storage.segment.offset_index import OffsetIndex
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config, log_config

TOPIC = TopicPartition("topic", 0)
NOW_MS = 1_700_000_000_000


class Bench:
    """One log on a file system, with everything that it needs; opens again as often as asked."""

    def __init__(self, root: str, files: Files | None = None, **config: object) -> None:
        self.root = root
        self.files: Files = files or RealFiles()
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.environment = Environment(
            self.files, self.clock, random.Random(7), self.scheduler, InlineBackground(), broker_config()
        )
        self.config = log_config(**config)
        self.log_directory = LogDirectory(root)

    @property
    def directory(self) -> str:
        return f"{self.root}/{TOPIC}"

    def open(
        self,
        *,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
    ) -> Log:
        self.log_directory = LogDirectory(self.root)
        return open_log(
            TOPIC,
            self.log_directory,
            self.directory,
            self.config,
            self.environment,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            cleaned_offset=cleaned_offset,
        )

    def names(self, suffix: str = "") -> list[str]:
        return sorted(e.name for e in self.files.list(self.directory) if e.name.endswith(suffix))


def batch(
    values: Sequence[bytes | str] = (b"value",),
    *,
    timestamp: int = NOW_MS,
    key: bytes | None = None,
    **fields: int,
) -> bytearray:
    rows = [(key, v.encode() if isinstance(v, str) else v, (), timestamp + n) for n, v in enumerate(values)]
    return build_batch(rows, **fields)  # type: ignore[arg-type]


def produce(
    log: Log, count: int = 1, *, epoch: int = 0, size: int = 20, timestamp: int = NOW_MS, **fields: Any
) -> AppendInfo:
    values = [bytes(size) for _ in range(count)]
    return log.append_as_leader(batch(values, timestamp=timestamp, **fields), leader_epoch=epoch)


def position_before(index: OffsetIndex, offset: int) -> int:
    """Where a search for the offset begins."""
    return index.entry_before(offset)[1]


def end_transaction(
    log: Log,
    producer_id: int,
    *,
    commit: bool,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    epoch: int = 0,
) -> AppendInfo:
    marker = build_end_transaction_marker(
        EndTransactionMarker(commit, coordinator_epoch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timestamp=NOW_MS,
    )
    return log.append_as_leader(marker, leader_epoch=epoch, origin=AppendOrigin.COORDINATOR)


def read_batches(log: Log, offset: int | None = None, max_bytes: int = 1 << 30) -> list[RecordBatch]:
    """Every batch from `offset` to the end, segment by segment."""
    offset = log.log_start_offset if offset is None else offset
    found: list[RecordBatch] = []
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, upper_offset=log.log_end_offset)
        if isinstance(data.records, bytes):
            break
        batches = list(iterate_batches(data.records.read()))
        found.extend(batches)
        offset = batches[-1].next_offset
    return found


def offsets(batches: Iterable[RecordBatch]) -> list[tuple[int, int]]:
    return [(b.base_offset, b.last_offset) for b in batches]
