"""Options of the record formats: how the bytes of a record are decoded and encoded."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options.option import Kind, Option, Value

FORMATS = ("json", "avro", "protobuf", "csv", "text", "raw")

_REGISTRY = (
    Option("schema_registry", Kind.TEXT, None, "URL of a schema registry; records carry Confluent's framing.",
           aliases=("value.converter.schema.registry.url",), is_address=True),
    Option("subject", Kind.TEXT, None, "Subject in the registry. Default: `<topic>-value`."),
    Option("avro_schema", Kind.TEXT, None, "Avro schema as JSON, or `@file`; not needed with a registry."),
    Option("descriptor_file", Kind.TEXT, None, "Protobuf descriptor set, as `protoc --descriptor_set_out` writes it."),
    Option("message", Kind.TEXT, None, "Full name of the Protobuf message."),
)  # fmt: skip

DECODE = (
    Option("format", Kind.CHOICE, "json", "Format of the record's value.", choices=FORMATS,
           aliases=("value.format",)),
    Option("schema", Kind.SCHEMA, None, "Columns of the value (json, csv). Default: inferred from samples of JSON.",
           aliases=("value.schema",)),
    Option("envelope", Kind.CHOICE, "none", "Whether JSON values have Connect's envelope of schema and payload.",
           choices=("none", "connect", "auto")),
    Option("samples", Kind.INTEGER, 200, "Number of records from which a schema is inferred.", at_least=1),
    Option("key_format", Kind.CHOICE, "raw", "Format of the record's key.", choices=("raw", "text", "json"),
           aliases=("key.format",)),
    Option("key_schema", Kind.SCHEMA, None, "Columns of a JSON key.", aliases=("key.schema",)),
    Option("format_options", Kind.MAP, None, "Further options of Spark's JSON or CSV functions."),
    *_REGISTRY,
)  # fmt: skip

ENCODE = (
    Option("format", Kind.CHOICE, "json", "Format of the record's value.", choices=FORMATS,
           aliases=("value.format",)),
    Option("key", Kind.LIST, None, "Columns of the key. Default: the `_key` column, if the rows have it."),
    Option("format_options", Kind.MAP, None, "Further options of Spark's JSON or CSV functions."),
    *_REGISTRY,
)  # fmt: skip


def format_complaints(options: Mapping[str, Value]) -> list[str]:
    """Missing options of a format."""
    kind = options.get("format", "json")
    if kind == "avro" and not (options.get("avro_schema") or options.get("schema_registry")):
        return ["format avro needs 'avro_schema' or 'schema_registry'"]
    if kind == "protobuf":
        missing = [name for name in ("descriptor_file", "message") if not options.get(name)]
        return [f"format protobuf needs {' and '.join(map(repr, missing))}"] if missing else []
    return []


def decode_complaints(options: Mapping[str, Value]) -> list[str]:
    complaints = format_complaints(options)
    if options.get("format") == "csv" and not options.get("schema"):
        complaints.append("format csv needs 'schema': CSV lines do not name their columns")
    if options.get("key_format") == "json" and not options.get("key_schema"):
        complaints.append("key_format json needs 'key_schema'")
    return complaints
