"""The control record that ends a transaction.

Key: `version i16, type i16` (0 abort, 1 commit); value: `version i16, coordinator epoch i32`.
A marker batch holds exactly one such record. A control batch whose record compaction has
removed is empty: the transaction it ended is gone from the log as well. Other control types
(leader change, snapshot headers) belong to other logs and end nothing.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.core.errors import CorruptMessage
from barnabas.records.batch import RecordBatch
from barnabas.records.varint import read_varint, read_varlong

ABORT = 0
COMMIT = 1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndTransactionMarker(NamedTuple):
    is_abort: bool
    coordinator_epoch: int


def read_end_transaction_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """The marker in a control batch; None when it holds none."""
    if batch.record_count <= 0:
        return None
    payload = batch.payload()
    try:
        _, position = read_varint(payload, 0)
        _, position = read_varlong(payload, position + 1)
        _, position = read_varint(payload, position)
        key_bytes, position = read_varint(payload, position)
        if key_bytes < _KEY.size:
            return None
        _, control_type = _KEY.unpack_from(payload, position)
        if control_type not in (ABORT, COMMIT):
            return None
        value_bytes, position = read_varint(payload, position + key_bytes)
        if value_bytes < _VALUE.size:
            return None
        _, coordinator_epoch = _VALUE.unpack_from(payload, position)
    except (struct.error, IndexError):
        raise CorruptMessage("a control record ends early") from None
    return EndTransactionMarker(control_type == ABORT, coordinator_epoch)
