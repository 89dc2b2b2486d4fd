"""Columns of a topic as a table, with their Arrow types. The names are those of Spark's Kafka connector.

Spark compares the Arrow schema of a reader's batches with its own and refuses any difference. So these are
the types that Spark derives from its own (`pyspark_barnabas.shared.columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", HEADER_TYPE))

ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

DEFAULT_COLUMNS: Final = tuple(name for name in ARROW_TYPES if name != "headers")


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])
