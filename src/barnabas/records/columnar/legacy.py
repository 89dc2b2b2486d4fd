"""Messages of magic 0 and 1 to Arrow. They are rare, so they are decoded record by record."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from barnabas.records.batch import LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT
from barnabas.records.columnar.decode import DecodeTarget
from barnabas.records.columnar.schema import ARROW_TYPES, arrow_schema
from barnabas.records.legacy import iterate_message_records, iterate_messages, magic_of
from barnabas.records.record import Record
from barnabas.records.varint import Buffer

NO_TIMESTAMP_TYPE: Final = -1
_SIZE: Final = struct.Struct(">i")


def is_legacy(records: Buffer) -> bool:
    """True if `records` begins with a message older than magic 2."""
    return len(records) > MAGIC_AT and magic_of(records) < MAGIC


def legacy_prefix(records: Buffer) -> Buffer:
    """Whole messages of magic 0 and 1 at the beginning of `records`."""
    position = 0
    while is_legacy(records[position : position + MAGIC_AT + 1]):
        (size,) = _SIZE.unpack_from(records, position + 8)
        if size < 0 or position + LOG_OVERHEAD_BYTES + size > len(records):
            break
        position += LOG_OVERHEAD_BYTES + size
    return records[:position]


def end_offset(records: Buffer) -> int:
    """Offset after the last whole message."""
    return max((message.next_offset for message in iterate_messages(records)), default=-1)


def decode_legacy(records: Buffer, target: DecodeTarget, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Records of old messages. Transactions came with magic 2, so none is filtered."""
    rows: list[tuple[Record, int]] = []
    for message in iterate_messages(records):
        message.check_crc()
        kind = NO_TIMESTAMP_TYPE if message.magic == 0 else int(message.is_log_append_time)
        found = iterate_message_records(message)
        rows += [(record, kind) for record in found if start <= record.offset < end]
    if not rows:
        return
    columns: dict[str, Any] = {
        "key": [record.key for record, _ in rows],
        "value": [record.value for record, _ in rows],
        "topic": [target.topic] * len(rows),
        "partition": [target.partition] * len(rows),
        "offset": [record.offset for record, _ in rows],
        "timestamp": np.array([record.timestamp for record, _ in rows], np.int64) * 1_000,
        "timestampType": [kind for _, kind in rows],
        "headers": [None] * len(rows),
    }
    arrays = [
        pa.array(columns[name]).view(ARROW_TYPES[name])
        if name == "timestamp"
        else pa.array(columns[name], ARROW_TYPES[name])
        for name in target.columns
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(target.columns))
