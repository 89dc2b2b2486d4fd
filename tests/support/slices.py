"""Work in slices, done in one go."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from barnabas.core.bounds.budget import Budget
from barnabas.core.limits import INFLATED_BATCH_BYTES_MAX
from barnabas.core.steps import run_to_end
from barnabas.records import legacy
from barnabas.records.varint import Buffer
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_search import TimestampAndOffset, search_by_time, search_max_timestamp


def in_one_go(result: Any) -> Any:
    """Return value of a generator; anything else is the result already."""
    return run_to_end(result) if isinstance(result, Generator) else result


def convert_down(
    records: Buffer, magic: int, *, first_offset: int = 0, bytes_max: int = INFLATED_BATCH_BYTES_MAX
) -> bytearray:
    return run_to_end(
        legacy.convert_down(records, magic, Budget(), first_offset=first_offset, bytes_max=bytes_max)
    )


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampAndOffset | None:
    return run_to_end(search_by_time(log, timestamp, Budget()))


def max_timestamp_offset(log: Log) -> TimestampAndOffset | None:
    return run_to_end(search_max_timestamp(log, Budget()))
