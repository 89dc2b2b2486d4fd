"""Avro by fastavro, with or without the registry's framing.

Reading, a record's own schema (by its id) is resolved against the one that the columns come
from: the given schema, or the subject's latest. Writing, a schema that was not given is made
from the columns, and registered where there is a registry. Gap: unions of several types.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.formats.arrow import Decoded, ReadOne, WriteOne, arrow_decoder, arrow_encoder
from barnabas.pipelines.spark.formats.registry import frame, latest_schema, register, schema_by_id, unframe
from barnabas.pipelines.spark.run import PipelineFailed, Run
from barnabas.pipelines.spec.model import Part

_SIMPLE: Mapping[str, T.DataType] = {
    "boolean": T.BooleanType(), "int": T.IntegerType(), "long": T.LongType(), "float": T.FloatType(),
    "double": T.DoubleType(), "bytes": T.BinaryType(), "fixed": T.BinaryType(), "string": T.StringType(),
    "enum": T.StringType(),
}  # fmt: skip
_LOGICAL: Mapping[str, T.DataType] = {
    "timestamp-millis": T.TimestampType(), "timestamp-micros": T.TimestampType(), "date": T.DateType(),
    "local-timestamp-millis": T.TimestampNTZType(), "local-timestamp-micros": T.TimestampNTZType(),
    "uuid": T.StringType(),
}  # fmt: skip
_WRITTEN: tuple[tuple[type[T.DataType], Any], ...] = (
    (T.BooleanType, "boolean"), (T.ByteType, "int"), (T.ShortType, "int"), (T.IntegerType, "int"),
    (T.LongType, "long"), (T.FloatType, "float"), (T.DoubleType, "double"), (T.StringType, "string"),
    (T.BinaryType, "bytes"),
    (T.TimestampType, {"type": "long", "logicalType": "timestamp-micros"}),
    (T.DateType, {"type": "int", "logicalType": "date"}),
)  # fmt: skip


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
    """The Spark type that holds what an Avro schema describes."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise PipelineFailed("Avro unions of several types have no Spark type; only a type or null")
        return spark_type(others[0])
    if isinstance(schema, dict):
        return _complex_type(schema)
    if schema not in _SIMPLE:
        raise PipelineFailed(
            f"the Avro type {schema!r} is not known here (named types are used in place only)"
        )
    return _SIMPLE[schema]


def _complex_type(schema: Mapping[str, Any]) -> T.DataType:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return T.DecimalType(schema["precision"], schema.get("scale", 0))
    if kind == "record":
        return T.StructType(
            [T.StructField(each["name"], spark_type(each["type"])) for each in schema["fields"]]
        )
    if kind == "array":
        return T.ArrayType(spark_type(schema["items"]))
    if kind == "map":
        return T.MapType(T.StringType(), spark_type(schema["values"]))
    return _LOGICAL.get(str(logical)) or spark_type(kind)


def avro_schema(kind: T.DataType, name: str) -> Any:
    """The Avro schema that holds a Spark type; every field may be null."""
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
    """As Arrow takes it: ids as text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, uuid.UUID) else value


def _writer(text: str, schema_id: int | None) -> WriteOne:
    import fastavro  # noqa: PLC0415 - made in each worker

    schema = fastavro.parse_schema(json.loads(text))

    def write(row: Mapping[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, row)
        payload = stream.getvalue()
        return payload if schema_id is None else frame(schema_id, payload)

    return write
