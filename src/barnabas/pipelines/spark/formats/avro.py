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
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from barnabas.pipelines.spark.formats.arrow import ReadOne, WriteOne, arrow_decoder, arrow_encoder
from barnabas.pipelines.spark.formats.decoded import Decoded
from barnabas.pipelines.spark.formats.registry import frame, latest_schema, register, schema_by_id, unframe
from barnabas.pipelines.spark.run import PipelineFailed, Run
from barnabas.pipelines.spec.model import Part

_SIMPLE: Mapping[str, DataType] = {
    "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "bytes": BinaryType(), "fixed": BinaryType(), "string": StringType(),
    "enum": StringType(),
}  # fmt: skip
_LOGICAL: Mapping[str, DataType] = {
    "timestamp-millis": TimestampType(), "timestamp-micros": TimestampType(), "date": DateType(),
    "local-timestamp-millis": TimestampNTZType(), "local-timestamp-micros": TimestampNTZType(),
    "uuid": StringType(),
}  # fmt: skip
_WRITTEN: tuple[tuple[type[DataType], Any], ...] = (
    (BooleanType, "boolean"), (ByteType, "int"), (ShortType, "int"), (IntegerType, "int"), (LongType, "long"),
    (FloatType, "float"), (DoubleType, "double"), (StringType, "string"), (BinaryType, "bytes"),
    (TimestampType, {"type": "long", "logicalType": "timestamp-micros"}),
    (DateType, {"type": "int", "logicalType": "date"}),
)  # fmt: skip


def avro_decoder(part: Part, run: Run) -> Callable[[Column], Decoded]:
    url = run.resolved(part, "schema_registry")
    text = _given(part) or latest_schema(url, _subject(part, run, part.get("topics", [""])[0]))[1]
    schema = spark_type(json.loads(text))
    if not isinstance(schema, StructType):
        raise PipelineFailed("the Avro schema is not a record, so it has no columns")
    return arrow_decoder(lambda: _reader(text, url), schema, "Avro of its schema")


def avro_encoder(part: Part, run: Run) -> Callable[[Column, StructType], Column]:
    url = run.resolved(part, "schema_registry")
    topic = part.get("topic", "")

    def encode(value: Column, columns: StructType) -> Column:
        text = _given(part) or json.dumps(avro_schema(columns, "Value"))
        schema_id = register(url, _subject(part, run, topic), text) if url else None
        return arrow_encoder(lambda: _writer(text, schema_id))(value)

    return encode


def spark_type(schema: Any) -> DataType:
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


def _complex_type(schema: Mapping[str, Any]) -> DataType:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if kind == "record":
        return StructType([StructField(each["name"], spark_type(each["type"])) for each in schema["fields"]])
    if kind == "array":
        return ArrayType(spark_type(schema["items"]))
    if kind == "map":
        return MapType(StringType(), spark_type(schema["values"]))
    return _LOGICAL.get(str(logical)) or spark_type(kind)


def avro_schema(kind: DataType, name: str) -> Any:
    """The Avro schema that holds a Spark type; every field may be null."""
    if isinstance(kind, StructType):
        fields = [
            {
                "name": each.name,
                "type": ["null", avro_schema(each.dataType, f"{name}_{each.name}")],
                "default": None,
            }
            for each in kind.fields
        ]
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": ["null", avro_schema(kind.elementType, name)]}
    if isinstance(kind, MapType):
        return {"type": "map", "values": ["null", avro_schema(kind.valueType, name)]}
    if isinstance(kind, DecimalType):
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
