"""A row as a record: the columns of its value, its key, and its place.

Single-message transforms rewrite a mapping of names to column expressions; here is how such a
mapping comes out of a DataFrame and goes back into one, for the value or for a struct key, and
for all rows or only those that a predicate holds for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql.types import DataType, StructType

from barnabas.pipelines.spark.run import PipelineFailed
from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.reserved_words import RESERVED, TOMBSTONE

Fields = dict[str, Column]
Types = dict[str, DataType]

WHOLE = "value"
"""A value that is this one column is written as it is, not as an object around it."""


def quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def payload(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in RESERVED]


def types_of(rows: DataFrame, target: str) -> Types:
    """The fields of the value or the key, with their types."""
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
    """`rows` with the fields that `change` makes of those of the target."""
    target = part.get("target", "value")
    before = fields_of(rows, target)
    after = _where_it_holds(rows, part, before, change(dict(before), types_of(rows, target)))
    kept = [
        quoted(name) for name in RESERVED if name in rows.columns and (target == "value" or name != "_key")
    ]
    if target == "value":
        return rows.select(*(column.alias(name) for name, column in after.items()), *kept)
    whole = list(after) == [WHOLE]
    key = after[WHOLE] if whole else F.struct(*(column.alias(name) for name, column in after.items()))
    return rows.select(*(quoted(name) for name in payload(rows)), key.alias("_key"), *kept)


def set_reserved(rows: DataFrame, part: Part, name: str, column: Column) -> DataFrame:
    """`rows` with one of the columns of the record's place changed."""
    condition = predicate(rows, part)
    if condition is not None:
        column = F.when(condition, column)
        column = column.otherwise(F.col(name)) if name in rows.columns else column
    return rows.withColumn(name, column)


def predicate(rows: DataFrame, part: Part) -> Column | None:
    text = part.get("predicate")
    if text is None:
        return None
    condition = _all_null(rows) if text == TOMBSTONE else F.expr(text)
    return F.coalesce(~condition if part.get("negate") else condition, F.lit(bool(part.get("negate"))))


def need(rows: DataFrame, name: str, why: str) -> Column:
    if name not in rows.columns:
        raise PipelineFailed(
            f"{why} needs the column {name}, which the source or an earlier transform left out"
        )
    return F.col(name)


def _all_null(rows: DataFrame) -> Column:
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
