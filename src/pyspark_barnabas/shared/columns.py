"""Columns of the data source, with the names and types of Spark's own Kafka connector.

Their Arrow types are in `schema`, so that a process that only needs the names imports no Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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


def spark_schema(columns: Sequence[str]) -> str:
    """Schema of `columns` as DDL."""
    return ", ".join(f"`{name}` {SPARK_TYPES[name]}" for name in columns)
