"""The columns, exactly as Spark's own Kafka connector names and types them.

Spark compares the Arrow schema of what a reader yields with its own and refuses any difference, so
both are written down here, side by side.
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
SPARK_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
DEFAULT_COLUMNS: Final = tuple(name for name in SPARK_TYPES if name != "headers")
assert ARROW_TYPES.keys() == SPARK_TYPES.keys()


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


def spark_schema(columns: Sequence[str]) -> str:
    """As DDL."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)
