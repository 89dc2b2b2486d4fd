"""Columns of a record: its value, key and coordinates.

Single-message transforms rewrite a mapping of names to column expressions. This module extracts such a
mapping from a DataFrame and applies it to the value or a struct key. A predicate limits it to some rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import DataType, StructType

from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options.reserved_words import IS_TOMBSTONE, RESERVED, TOMBSTONE

Fields = dict[str, Column]
Types = dict[str, DataType]

WHOLE = "value"
"""A value with only this column is written as it is, without an object around it."""


def quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def payload(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in RESERVED]


def types_of(rows: DataFrame, target: str) -> Types:
    """Fields of the value or the key, with their types."""
    if target == "value":
        return {field.name: field.dataType for field in rows.schema.fields if field.name not in RESERVED}
    if "_key" not in rows.columns:
        raise PipelineFailed("there is no key to change: an earlier transform dropped the column _key")
    key = rows.schema["_key"].dataType
    return (
        {field.name: field.dataType for field in key.fields} if isinstance(key, StructType) else {WHOLE: key}
    )


def fields_of(rows: DataFrame, target: str) -> Fields:
    names = types_of(rows, target)
    if target == "value":
        return {name: quoted(name) for name in names}
    if list(names) == [WHOLE]:
        return {WHOLE: F.col("_key")}
    return {name: F.col("_key").getField(name) for name in names}


def rewrite(rows: DataFrame, part: Part, change: Callable[[Fields, Types], Fields]) -> DataFrame:
    """`rows` with the target's fields replaced by the result of `change`."""
    target = part.get("target", "value")
    before = fields_of(rows, target)
    after = _where_it_holds(rows, part, before, change(dict(before), types_of(rows, target)))
    tombstone = is_tombstone(rows)
    if target == "value" and tombstone is not None:
        # As in Connect, a record without a value skips transforms of values.
        after = {name: F.when(~tombstone, column) for name, column in after.items()}
    kept = [
        quoted(name) for name in RESERVED if name in rows.columns and (target == "value" or name != "_key")
    ]
    if target == "value":
        return rows.select(*(column.alias(name) for name, column in after.items()), *kept)
    whole = list(after) == [WHOLE]
    key = after[WHOLE] if whole else F.struct(*(column.alias(name) for name, column in after.items()))
    return rows.select(*(quoted(name) for name in payload(rows)), key.alias("_key"), *kept)


def set_reserved(rows: DataFrame, part: Part, name: str, column: Column) -> DataFrame:
    """`rows` with one reserved column changed."""
    condition = predicate(rows, part)
    if condition is not None:
        column = F.when(condition, column)
        column = column.otherwise(F.col(name)) if name in rows.columns else column
    return rows.withColumn(name, column)


def predicate(rows: DataFrame, part: Part) -> Column | None:
    text = part.get("predicate")
    if text is None:
        return None
    condition = _has_no_value(rows) if text == TOMBSTONE else F.expr(text)
    return F.coalesce(~condition if part.get("negate") else condition, F.lit(bool(part.get("negate"))))


def need(rows: DataFrame, name: str, why: str) -> Column:
    if name not in rows.columns:
        raise PipelineFailed(
            f"{why} needs the column {name}, which the source or an earlier transform left out"
        )
    return F.col(name)


def _has_no_value(rows: DataFrame) -> Column:
    tombstone = is_tombstone(rows)
    return all_null(rows) if tombstone is None else tombstone


def is_tombstone(rows: DataFrame) -> Column | None:
    """True if the record had no value; None where a transform dropped the marker column."""
    if IS_TOMBSTONE not in rows.columns:
        return None
    return F.coalesce(F.col(IS_TOMBSTONE).cast("boolean"), F.lit(False))


def all_null(rows: DataFrame) -> Column:
    return reduce(lambda left, right: left & right, (quoted(name).isNull() for name in payload(rows)))


def _where_it_holds(rows: DataFrame, part: Part, before: Fields, after: Fields) -> Fields:
    condition = predicate(rows, part)
    if condition is None:
        return after
    merged = {
        name: F.when(condition, column).otherwise(before[name] if name in before else F.lit(None))
        for name, column in after.items()
    }
    gone = {name: F.when(~condition, column) for name, column in before.items() if name not in after}
    return {**gone, **merged}
