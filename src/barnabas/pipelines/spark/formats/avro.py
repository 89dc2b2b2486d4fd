"""Avro by fastavro, with or without the registry's framing.

When reading, a record's own schema (by its id) is resolved against the schema of the columns: the given one,
or the subject's latest. When writing, a missing schema is made from the columns, and registered if there is a
registry. Times of day are text, such as `01:02:03.004`. Gaps: unions of several types, recursive types.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.client.extensions.schema_frame import frame, unframe
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.formats.arrow import Decoded, ReadOne, WriteOne, arrow_decoder, arrow_encoder
from barnabas.pipelines.spark.formats.registry import latest_schema, register, schema_by_id
from barnabas.pipelines.spec.model import Part

_SIMPLE: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(), "int": T.IntegerType(), "long": T.LongType(), "float": T.FloatType(),
    "double": T.DoubleType(), "bytes": T.BinaryType(), "fixed": T.BinaryType(), "string": T.StringType(),
    "enum": T.StringType(),
}  # fmt: skip
_LOGICAL: Mapping[str, T.DataType] = {
    "timestamp-millis": T.TimestampType(), "timestamp-micros": T.TimestampType(), "date": T.DateType(),
    "local-timestamp-millis": T.TimestampNTZType(), "local-timestamp-micros": T.TimestampNTZType(),
    "uuid": T.StringType(), "time-millis": T.StringType(), "time-micros": T.StringType(),
}  # fmt: skip
_WRITTEN: tuple[tuple[type[T.DataType], Any], ...] = (
    (T.BooleanType, "boolean"), (T.ByteType, "int"), (T.ShortType, "int"), (T.IntegerType, "int"),
    (T.LongType, "long"), (T.FloatType, "float"), (T.DoubleType, "double"), (T.StringType, "string"),
    (T.BinaryType, "bytes"),
    (T.TimestampType, {"type": "long", "logicalType": "timestamp-micros"}),
    (T.TimestampNTZType, {"type": "long", "logicalType": "local-timestamp-micros"}),
    (T.DateType, {"type": "int", "logicalType": "date"}),
)  # fmt: skip


TIMES = ("time-millis", "time-micros")


def avro_decoder(part: Part, run: Run) -> Callable[[Column], Decoded]:
    url = run.resolved(part, "schema_registry")
    text = _given(part) or latest_schema(url, _subject(part, run, part.get("topics", [""])[0]))[1]
    schema = spark_type(json.loads(text))
    if not isinstance(schema, T.StructType):
        raise PipelineFailed("the Avro schema is not a record, so it has no columns")
    return arrow_decoder(lambda: _reader(text, url), schema, "Avro of its schema")


def avro_encoder(part: Part, run: Run) -> Callable[[Column, T.StructType], Column]:
    url = run.resolved(part, "schema_registry")
    topic = part.get("topic", "")

    def encode(value: Column, columns: T.StructType) -> Column:
        text = _given(part) or json.dumps(avro_schema(columns, "Value"))
        schema_id = register(url, _subject(part, run, topic), text) if url else None
        return arrow_encoder(lambda: _writer(text, schema_id))(value)

    return encode


def spark_type(schema: Any) -> T.DataType:
    """Spark type for the values of an Avro schema."""
    return _Types().of(schema, "")


class _Types:
    """Types of one schema, with the names defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, T.DataType | None] = {}
        """None for a type whose description is not complete yet."""

    def of(self, schema: Any, namespace: str) -> T.DataType:
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise PipelineFailed("Avro unions of several types have no Spark type; only a type or null")
            return self.of(others[0], namespace)
        if isinstance(schema, dict):
            return self._complex(schema, namespace)
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        full = _full_name(schema, namespace)
        name = full if full in self._named else schema
        if name not in self._named:
            raise PipelineFailed(f"the Avro type {schema!r} is unknown; it is not defined before its use")
        found = self._named[name]
        if found is None:
            raise PipelineFailed(f"the Avro type {schema!r} is recursive, which no Spark type is")
        return found

    def _complex(self, schema: Mapping[str, Any], namespace: str) -> T.DataType:
        name = schema.get("name")
        if name is None:
            return self._described(schema, namespace)
        full = _full_name(name, schema.get("namespace", namespace))
        self._named[full] = None
        found = self._named[full] = self._described(schema, full.rpartition(".")[0])
        return found

    def _described(self, schema: Mapping[str, Any], namespace: str) -> T.DataType:
        kind, logical = schema["type"], schema.get("logicalType")
        if logical == "decimal":
            return T.DecimalType(schema["precision"], schema.get("scale", 0))
        if kind == "record":
            fields = ((each["name"], each["type"]) for each in schema["fields"])
            return T.StructType([T.StructField(name, self.of(each, namespace)) for name, each in fields])
        if kind == "array":
            return T.ArrayType(self.of(schema["items"], namespace))
        if kind == "map":
            return T.MapType(T.StringType(), self.of(schema["values"], namespace))
        return _LOGICAL.get(str(logical)) or self.of(kind, namespace)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def avro_schema(kind: T.DataType, name: str) -> Any:
    """Avro schema for a Spark type; every field may be null."""
    if isinstance(kind, T.StructType):
        fields = [
            {
                "name": each.name,
                "type": ["null", avro_schema(each.dataType, f"{name}_{each.name}")],
                "default": None,
            }
            for each in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", avro_schema(kind.elementType, name)]}
    if isinstance(kind, T.MapType):
        return {"type": "map", "values": ["null", avro_schema(kind.valueType, name)]}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    for spark, avro in _WRITTEN:
        if isinstance(kind, spark):
            return avro
    raise PipelineFailed(f"{kind.simpleString()} has no Avro type")


def _given(part: Part) -> str | None:
    text = part.get("avro_schema")
    if text is None:
        return None
    return Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else str(text)


def _subject(part: Part, run: Run, topic: str) -> str:
    subject = part.get("subject") or (f"{topic}-value" if topic else None)
    if subject is None:
        raise PipelineFailed(f"pipeline {run.spec.name}: with a schema registry, give 'subject' or a topic")
    return str(subject)


def _reader(text: str, url: str | None) -> ReadOne:
    import fastavro  # noqa: PLC0415 - made in each worker

    wanted = fastavro.parse_schema(json.loads(text))
    writers: dict[int, Any] = {}

    def plain(value: bytes) -> Mapping[str, Any]:
        return _checked(io.BytesIO(value), wanted, wanted)

    def framed(value: bytes) -> Mapping[str, Any]:
        schema_id, payload = unframe(value)
        if schema_id not in writers:
            assert url is not None
            writers[schema_id] = fastavro.parse_schema(json.loads(schema_by_id(url, schema_id)))
        return _checked(io.BytesIO(payload), writers[schema_id], wanted)

    return plain if url is None else framed


def _checked(stream: io.BytesIO, writer: Any, reader: Any) -> Mapping[str, Any]:
    import fastavro  # noqa: PLC0415 - made in each worker

    row = fastavro.schemaless_reader(stream, writer, reader)
    if stream.read(1):
        raise ValueError("bytes are left over after the record")
    found: Mapping[str, Any] = _plain(row)
    return found


def _plain(value: Any) -> Any:
    """Value for Arrow: UUIDs and times of day as text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value


def _writer(text: str, schema_id: int | None) -> WriteOne:
    import fastavro  # noqa: PLC0415 - made in each worker

    schema = fastavro.parse_schema(json.loads(text))
    has_times = any(f'"{each}"' in text for each in TIMES)

    def write(row: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, _with_times(row, schema) if has_times else row)
        payload = stream.getvalue()
        return payload if schema_id is None else frame(schema_id, payload)

    return write


def _with_times(value: Any, schema: Any) -> Any:
    """Text back to times of day, where the schema has them; inside maps and named types it stays text."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        return _with_times(value, others[0]) if value is not None and len(others) == 1 else value
    if not isinstance(schema, dict) or value is None:
        return value
    if schema.get("logicalType") in TIMES and isinstance(value, str):
        return dt.time.fromisoformat(value)
    if schema["type"] == "record":
        return {each["name"]: _with_times(value.get(each["name"]), each["type"]) for each in schema["fields"]}
    if schema["type"] == "array":
        return [_with_times(each, schema["items"]) for each in value]
    return value
