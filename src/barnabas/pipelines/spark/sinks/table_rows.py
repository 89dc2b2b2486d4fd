"""Rows of a database table: the columns of its key, and the marks of deleted rows.

The key's columns are those of the value, as in Connect's `pk.mode=record_value`. Or the key of the record
gives them (`record_key`), or its coordinates (`kafka`). A record without a value then still has a key: it
deletes the row, or is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import StructType

from barnabas.pipelines.spark.columns.columns import is_tombstone, need, payload, quoted
from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spec.model import Part

DELETED = "_barnabas_deleted"
COORDINATES = {
    "__connect_topic": "_topic",
    "__connect_partition": "_partition",
    "__connect_offset": "_offset",
}
"""Connect's names of the columns, where the spec gives none."""


class TableRows(NamedTuple):
    rows: DataFrame
    """Columns of the table, `_barnabas_deleted`, and the record's own."""
    names: list[str]
    key: list[str]


def table_rows(rows: DataFrame, part: Part) -> TableRows:
    keys = _keys(rows, part)
    values = [name for name in payload(rows) if name not in keys]
    names = [*keys, *values] if keys else values
    wanted = list(part.get("key") or keys)
    missing = [name for name in wanted if name not in names]
    if missing:
        raise PipelineFailed(
            f"the sink's key {', '.join(missing)} is not a column; there are {', '.join(names)}"
        )
    tombstone = is_tombstone(rows) if keys else None
    if keys and tombstone is None and part.get("delete"):
        need(rows, "_tombstone", "sink.delete")
    deleted = F.lit(0) if tombstone is None else tombstone.cast("int")
    kept = [quoted(name) for name in rows.columns if name not in names]
    chosen = [keys[name].alias(name) if name in keys else quoted(name) for name in names]
    return TableRows(rows.select(*chosen, deleted.alias(DELETED), *kept), names, wanted)


def _keys(rows: DataFrame, part: Part) -> dict[str, Column]:
    """Columns of the key that are not the value's, by their names in the table."""
    source = part.get("key_from", "value")
    names: Sequence[str] = part.get("key") or ()
    if source == "value":
        return {}
    if source == "coordinates":
        chosen = tuple(names) or tuple(COORDINATES)
        if len(chosen) != len(COORDINATES):
            raise PipelineFailed("sink.key: key_from coordinates needs three names, or none")
        why = "sink.key_from: coordinates"
        return {
            name: need(rows, reserved, why)
            for name, reserved in zip(chosen, COORDINATES.values(), strict=True)
        }
    key = need(rows, "_key", "sink.key_from: record_key")
    kind = rows.schema["_key"].dataType
    if isinstance(kind, StructType):
        fields = kind.fieldNames()
        absent = [name for name in names if name not in fields]
        if absent:
            raise PipelineFailed(
                f"sink.key: the record's key has no field {', '.join(absent)}; it has {', '.join(fields)}"
            )
        return {name: key.getField(name) for name in names or fields}
    if len(names) != 1:
        raise PipelineFailed(
            "sink.key: the record's key is one value; expected the name of its column (a key of several"
            " fields needs the source's key_format: json and key_schema)"
        )
    return {names[0]: key}
