"""Protobuf by a descriptor set, with or without the registry's framing.

Framed messages carry, after the schema id, the path of the message in its file. The spec names the message,
so the path is skipped. Unknown fields are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.client.extensions.schema_frame import frame, place_of, unframe
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.formats.arrow import Decoded, ReadOne, WriteOne, arrow_decoder, arrow_encoder
from barnabas.pipelines.spark.formats.registry import latest_schema
from barnabas.pipelines.spec.model import Part

TIMESTAMP = "google.protobuf.Timestamp"


def protobuf_decoder(part: Part, run: Run) -> Callable[[Column], Decoded]:
    descriptors, message = Path(part["descriptor_file"]).read_bytes(), part["message"]
    framed = bool(run.resolved(part, "schema_registry"))
    schema = spark_struct(message_class(descriptors, message).DESCRIPTOR)
    return arrow_decoder(lambda: _reader(descriptors, message, framed=framed), schema, f"a {message}")


def protobuf_encoder(part: Part, run: Run) -> Callable[[Column, T.StructType], Column]:
    descriptors, message = Path(part["descriptor_file"]).read_bytes(), part["message"]
    url = run.resolved(part, "schema_registry")

    def encode(value: Column, _: T.StructType) -> Column:
        subject = part.get("subject") or f"{part.get('topic', '')}-value"
        schema_id = latest_schema(url, subject)[0] if url else None
        return arrow_encoder(lambda: _writer(descriptors, message, schema_id))(value)

    return encode


def message_class(descriptors: bytes, name: str) -> Any:
    """Class of a message, from a descriptor set."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    pool = descriptor_pool.DescriptorPool()
    if TIMESTAMP.rsplit(".", 1)[0] not in {file.package for file in files.file}:
        from google.protobuf import timestamp_pb2  # noqa: PLC0415

        pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in files.file:
        pool.Add(file)
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise PipelineFailed(f"the descriptor file has no message {name!r}") from None


def spark_struct(descriptor: Any) -> T.StructType:
    return T.StructType([T.StructField(field.name, _field_type(field)) for field in descriptor.fields])


def _field_type(field: Any) -> T.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return T.MapType(_one_type(entry["key"]), _one_type(entry["value"]))
    one = _one_type(field)
    return T.ArrayType(one) if field.is_repeated else one


def _one_type(field: Any) -> T.DataType:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        return (
            T.TimestampType()
            if field.message_type.full_name == TIMESTAMP
            else spark_struct(field.message_type)
        )
    if field.type == field.TYPE_BYTES:
        return T.BinaryType()
    simple: dict[int, T.DataType] = {
        field.CPPTYPE_INT32: T.IntegerType(), field.CPPTYPE_UINT32: T.LongType(),
        field.CPPTYPE_INT64: T.LongType(), field.CPPTYPE_UINT64: T.LongType(),
        field.CPPTYPE_DOUBLE: T.DoubleType(), field.CPPTYPE_FLOAT: T.FloatType(),
        field.CPPTYPE_BOOL: T.BooleanType(), field.CPPTYPE_ENUM: T.StringType(),
        field.CPPTYPE_STRING: T.StringType(),
    }  # fmt: skip
    return simple[field.cpp_type]


def _is_map(field: Any) -> bool:
    return field.cpp_type == field.CPPTYPE_MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _reader(descriptors: bytes, name: str, *, framed: bool) -> ReadOne:
    kind = message_class(descriptors, name)

    def read(value: bytes) -> Mapping[str, Any]:
        payload = place_of(unframe(value)[1])[1] if framed else value
        return _row(kind.FromString(payload))

    return read


def _row(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    found = getattr(message, field.name)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return {key: _one(each, inner) for key, each in found.items()}
    if field.is_repeated:
        return [_one(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(found, field)


def _one(value: Any, field: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_MESSAGE:
        if field.message_type.full_name == TIMESTAMP:
            return value.ToDatetime(tzinfo=UTC)
        return _row(value)
    if field.cpp_type == field.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    return value


def _writer(descriptors: bytes, name: str, schema_id: int | None) -> WriteOne:
    from google.protobuf import json_format  # noqa: PLC0415 - made in each worker

    kind = message_class(descriptors, name)

    def write(row: Mapping[str, Any]) -> bytes:
        message = kind()
        json_format.ParseDict(_jsonable(row), message)
        payload: bytes = message.SerializeToString()
        return payload if schema_id is None else frame(schema_id, b"\x00" + payload)

    return write


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _jsonable(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_jsonable(each) for each in value]
    if isinstance(value, bytes):
        import base64  # noqa: PLC0415

        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat() if value.tzinfo else value.isoformat() + "Z"
    return value
