"""Kafka Connect's single-message transforms as column expressions.

Each function is Connect's transform of the same name, applied by Spark to whole columns. Gaps:
SetSchemaMetadata has no meaning here (a DataFrame has no schema name), and header values are bytes, as in
Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.columns.columns import (
    WHOLE,
    Fields,
    Types,
    fields_of,
    need,
    predicate,
    quoted,
    rewrite,
    set_reserved,
)
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spec.model import Part, Tolerance

HEADERS = "array<struct<key: string, value: binary>>"
_TYPES = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "float32": "float",
          "float64": "double", "boolean": "boolean", "string": "string", "bytes": "binary"}  # fmt: skip
_RECORD_COLUMNS = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
}


def insert_field(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    def change(fields: Fields, __: Types) -> Fields:
        for option, column in _RECORD_COLUMNS.items():
            if name := part.get(f"{option}_field"):
                fields[name.rstrip("!?")] = need(rows, column, "InsertField")
        if name := part.get("static_field"):
            fields[name.rstrip("!?")] = F.lit(part.get("static_value"))
        return fields

    return rewrite(rows, part, change)


def replace_field(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    renames = dict(pair.split(":", 1) for pair in part.get("renames", []))
    exclude = set(part.get("exclude", []))
    include = part.get("include")

    def change(fields: Fields, __: Types) -> Fields:
        kept = (name for name in fields if name not in exclude and (include is None or name in include))
        return {renames.get(name, name): fields[name] for name in kept}

    return rewrite(rows, part, change)


def mask_field(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    replacement = part.get("replacement")

    def change(fields: Fields, types: Types) -> Fields:
        for name in part["fields"]:
            _present(name, fields)
            masked = F.lit(_blank(types[name])) if replacement is None else F.lit(replacement)
            fields[name] = F.when(fields[name].isNotNull(), masked.cast(types[name]))
        return fields

    return rewrite(rows, part, change)


def value_to_key(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    fields = fields_of(rows, "value")
    for name in part["fields"]:
        _present(name, fields)
    return set_reserved(rows, part, "_key", F.struct(*(fields[name].alias(name) for name in part["fields"])))


def extract_field(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    name: str = part["field"]

    def change(fields: Fields, __: Types) -> Fields:
        first, *rest = name.split(".") if name not in fields else [name]
        _present(first, fields)
        column = fields[first]
        for step in rest:
            column = column.getField(step)
        return {WHOLE: column}

    return rewrite(rows, part, change)


def cast(rows: DataFrame, part: Part, run: Run) -> DataFrame:
    """Cast. With tolerance `all` a failed cast gives null; otherwise it stops the pipeline."""
    lenient = run.spec.errors.tolerance is Tolerance.ALL

    def change(fields: Fields, _: Types) -> Fields:
        for item in part["spec"]:
            name, colon, kind = item.partition(":")
            name, kind = (name, kind) if colon else (WHOLE, name)
            _present(name, fields)
            wanted = _TYPES.get(kind.strip().lower(), kind.strip())
            fields[name] = fields[name].try_cast(wanted) if lenient else fields[name].cast(wanted)
        return fields

    return rewrite(rows, part, change)


def timestamp_converter(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    name = part["field"]

    def change(fields: Fields, types: Types) -> Fields:
        _present(name, fields)
        moment = _moment(fields[name], types[name], part)
        fields[name] = _as_target(moment, part)
        return fields

    return rewrite(rows, part, change)


def timestamp_router(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    topic, time = need(rows, "_topic", "TimestampRouter"), need(rows, "_timestamp", "TimestampRouter")
    formatted = F.date_format(time, part["timestamp_format"])
    name = F.replace(F.lit(part["topic_format"]), F.lit("${topic}"), topic)
    return set_reserved(rows, part, "_topic", F.replace(name, F.lit("${timestamp}"), formatted))


def regex_router(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    topic = need(rows, "_topic", "RegexRouter")
    whole = f"^(?:{part['regex']})$"
    routed = F.when(topic.rlike(whole), F.regexp_replace(topic, whole, part["replacement"])).otherwise(topic)
    return set_reserved(rows, part, "_topic", routed)


def hoist_field(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    def change(fields: Fields, __: Types) -> Fields:
        if list(fields) == [WHOLE]:
            return {part["field"]: fields[WHOLE]}
        return {part["field"]: F.struct(*(column.alias(name) for name, column in fields.items()))}

    return rewrite(rows, part, change)


def flatten(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    def change(fields: Fields, types: Types) -> Fields:
        return {
            flat: column
            for name, column in fields.items()
            for flat, column in _leaves(name, column, types[name], part["delimiter"])
        }

    return rewrite(rows, part, change)


def drop(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    """Connect's Filter: drops the rows of the predicate, or all rows without one."""
    condition = predicate(rows, part)
    return rows.where(F.lit(False) if condition is None else ~condition)


def drop_headers(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    headers = need(rows, "_headers", "DropHeaders")
    return set_reserved(
        rows, part, "_headers", F.filter(headers, lambda each: ~each["key"].isin(part["headers"]))
    )


def insert_header(rows: DataFrame, part: Part, _: Run) -> DataFrame:
    one = F.array(
        F.struct(
            F.lit(part["header"]).alias("key"), F.lit(part["value_literal"]).cast("binary").alias("value")
        )
    ).cast(HEADERS)
    empty = F.array().cast(HEADERS)
    present = F.coalesce(quoted("_headers"), empty) if "_headers" in rows.columns else empty
    return set_reserved(rows, part, "_headers", F.concat(present, one))


def _present(name: str, fields: Fields) -> None:
    if name not in fields:
        raise PipelineFailed(f"there is no field {name!r}; there are {', '.join(fields) or 'none'}")


def _blank(kind: T.DataType) -> object:
    """Connect's valid null: zero, false, or the empty text."""
    if isinstance(kind, T.BooleanType):
        return False
    if isinstance(kind, T.NumericType):
        return 0
    if isinstance(kind, (T.StringType, T.BinaryType)):
        return ""
    if isinstance(kind, (T.TimestampType, T.DateType)):
        return "1970-01-01"
    raise PipelineFailed(f"MaskField cannot mask a column of type {kind.simpleString()}")


def _moment(column: Column, kind: T.DataType, part: Part) -> Column:
    """Column of any type as a timestamp."""
    if isinstance(kind, T.StringType):
        pattern = part.get("format")
        return F.to_timestamp(column, pattern) if pattern else F.to_timestamp(column)
    if isinstance(kind, T.NumericType):
        makers = {"seconds": F.timestamp_seconds, "milliseconds": F.timestamp_millis}
        return makers.get(part["unix_precision"], F.timestamp_micros)(column.cast("bigint"))
    return column.cast("timestamp")


def _as_target(moment: Column, part: Part) -> Column:
    kind = part["target_type"]
    if kind == "string":
        return F.date_format(moment, part.get("format") or "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    if kind == "unix":
        makers = {"seconds": F.unix_seconds, "milliseconds": F.unix_millis}
        return makers.get(part["unix_precision"], F.unix_micros)(moment)
    if kind == "Date":
        return moment.cast("date")
    return F.date_format(moment, "HH:mm:ss.SSS") if kind == "Time" else moment


def _leaves(name: str, column: Column, kind: T.DataType, delimiter: str) -> Iterator[tuple[str, Column]]:
    if not isinstance(kind, T.StructType):
        yield name, column
        return
    for field in kind.fields:
        inner = column.getField(field.name)
        yield from _leaves(f"{name}{delimiter}{field.name}", inner, field.dataType, delimiter)
