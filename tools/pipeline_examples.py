"""Examples of docs/PIPELINE_SPEC.md: one for each source, transform and sink, and one for each option.

A test loads every example, so that each is valid.
"""

from __future__ import annotations

from typing import Any

from barnabas.pipelines.spec.options.option import Kind, Option

SCHEMA = "user STRING, page STRING, ms INT, at TIMESTAMP"

PLUGINS: dict[tuple[str, str], Any] = {
    ("source", "topic"): {
        "type": "topic", "topics": ["clicks"], "schema": SCHEMA, "watermark": "at 1 minute",
    },
    ("source", "files"): {
        "type": "files", "path": "in/*.csv", "format": "csv", "schema": SCHEMA,
        "format_options": {"header": "true"},
    },
    ("source", "jdbc"): {
        "type": "jdbc", "url": "postgresql://localhost:5432/shop", "user": "shop",
        "password": "${env:SHOP_PASSWORD}", "table": "orders", "column": "id",
    },
    ("source", "rate"): {"type": "rate", "rows_per_second": 10},
    ("transform", "sql"): {"sql": "SELECT *, date(at) AS day FROM input"},
    ("transform", "filter"): {"filter": "page IS NOT NULL"},
    ("transform", "window"): {
        "type": "window", "time": "at", "size": "1 minute", "group_by": ["page"],
        "aggregates": {"clicks": "count(*)", "slowest_ms": "max(ms)"},
    },
    ("transform", "deduplicate"): {"type": "deduplicate", "keys": ["user", "at"], "time": "at"},
    ("transform", "join"): {
        "type": "join", "on": ["user"], "how": "left",
        "source": {"type": "topic", "topics": ["users"], "schema": "user STRING, tier STRING"},
    },
    ("transform", "python"): {"python": "shop.clicks:clean"},
    ("transform", "InsertField"): {"type": "InsertField", "topic_field": "origin", "offset_field": "place"},
    ("transform", "ReplaceField"): {"type": "ReplaceField", "exclude": ["ms"], "renames": ["user:name"]},
    ("transform", "MaskField"): {"MaskField": ["user"]},
    ("transform", "ValueToKey"): {"ValueToKey": ["user"]},
    ("transform", "ExtractField"): {"ExtractField": "page"},
    ("transform", "Cast"): {"Cast": ["ms:int64"]},
    ("transform", "TimestampConverter"): {
        "type": "TimestampConverter", "field": "at", "target_type": "string", "format": "yyyy-MM-dd",
    },
    ("transform", "TimestampRouter"): {"type": "TimestampRouter", "topic_format": "${topic}-${timestamp}"},
    ("transform", "RegexRouter"): {"type": "RegexRouter", "regex": "raw-(.*)", "replacement": "clean-$1"},
    ("transform", "HoistField"): {"HoistField": "click"},
    ("transform", "Flatten"): {"Flatten": "_"},
    ("transform", "Filter"): {"type": "Filter", "predicate": "ms > 800"},
    ("transform", "DropHeaders"): {"DropHeaders": ["trace"]},
    ("transform", "InsertHeader"): {"type": "InsertHeader", "header": "origin", "value_literal": "web"},
    ("sink", "topic"): {"type": "topic", "topic": "clean", "key": ["user"]},
    ("sink", "files"): {"type": "files", "path": "lake/clicks", "partition_by": ["page"]},
    ("sink", "jdbc"): {
        "type": "jdbc", "url": "postgresql://localhost:5432/shop", "user": "shop",
        "password": "${env:SHOP_PASSWORD}", "table": "clicks", "key": ["user"],
    },
    ("sink", "table"): {"type": "table", "path": "lake/clicks", "partition_by": ["page"]},
    ("sink", "http"): {
        "type": "http", "url": "https://shop.example/orders", "token": "${env:SHOP_TOKEN}",
        "batch_records": 100,
    },
    ("sink", "mirror"): {"type": "mirror", "prefix": "east.", "groups": "shop-.*"},
    ("sink", "console"): {"type": "console", "rows": 5},
}  # fmt: skip

BY_NAME: dict[str, Any] = {
    "name": "clean-clicks",
    "dead_letter_topic": "bad-clicks",
    "master": "local[2]",
    "conf": {"spark.sql.shuffle.partitions": "2"},
    "topics": ["clicks"],
    "topic": "clean",
    "pattern": "clicks-.*",
    "assign": '{"clicks": [0, 1]}',
    "bootstrap": ["localhost:9092"],
    "starting_offsets": "latest",
    "group_id": "clean-clicks",
    "watermark": "at 1 minute",
    "manifest": "clicks.manifest",
    "kafka": {"security.protocol": "SSL"},
    "schema": SCHEMA,
    "key_schema": "id BIGINT",
    "format_options": {"mode": "PERMISSIVE"},
    "schema_registry": "http://localhost:8081",
    "subject": "clicks-value",
    "avro_schema": "@click.avsc",
    "descriptor_file": "click.desc",
    "message": "shop.Click",
    "path": "lake/clicks",
    "catalog": {"type": "rest", "uri": "https://catalog.example.org", "token": "${env:CATALOG_TOKEN}"},
    "target_file_size": "256 MB",
    "storage": {"AWS_REGION": "eu-central-1"},
    "url": "postgresql://localhost:5432/shop",
    "token": "${env:SHOP_TOKEN}",
    "ca_file": "/etc/pipelines/ca.pem",
    "idempotency_header": "X-Request-Id",
    "prefix": "east.",
    "groups": "shop-.*",
    "redirect_hosts": ["eu.shop.example"],
    "user": "shop",
    "password": "${env:SHOP_PASSWORD}",
    "table": "orders",
    "query": "SELECT * FROM orders",
    "column": "id",
    "key": ["user"],
    "partition_by": ["page"],
    "compression": "zstd",
    "where": "page IS NOT NULL",
    "time": "at",
    "group_by": ["page"],
    "aggregates": {"clicks": "count(*)"},
    "keys": ["user"],
    "on": ["user"],
    "source": {"type": "topic", "topics": ["users"], "schema": "user STRING, tier STRING"},
    "function": "shop.clicks:clean",
    "arguments": {"slow_ms": "800"},
    "static_field": "origin",
    "static_value": "web",
    "topic_field": "origin",
    "partition_field": "partition",
    "offset_field": "position",
    "timestamp_field": "written_at",
    "predicate": "ms > 800",
    "exclude": ["ms"],
    "include": ["user", "page"],
    "renames": ["user:name"],
    "fields": ["user"],
    "replacement": "hidden",
    "field": "page",
    "spec": ["ms:int64"],
    "format": "yyyy-MM-dd",
    "topic_format": "${topic}-${timestamp}",
    "timestamp_format": "yyyyMMdd",
    "regex": "raw-(.*)",
    "delimiter": "_",
    "headers": ["trace"],
    "header": "origin",
    "value_literal": "web",
}
"""By the option's name; the text of a value is enough for most kinds."""
EXACTLY: dict[tuple[str, str], Any] = {
    ("sql", "query"): "SELECT * FROM input WHERE ms > 1",
    ("RegexRouter", "replacement"): "clean-$1",
    ("table", "table"): "shop.clicks",
    ("table", "keep"): "2 days",
    ("files", "files_per_batch"): 1,
    ("http", "url"): "https://shop.example/customers/{key}",
    ("http", "headers"): {"X-Shop": "eu"},
    ("http", "timeout"): "10 seconds",
    ("", "trigger"): "10 seconds",
}
"""By the plugin's and the option's name, where the name alone is not enough."""


def example_of(plugin: str, row: Option) -> Any:  # noqa: PLR0911 - a table of kinds
    """A value for the option, or None for a section, which is described elsewhere on the page."""
    if (plugin, row.name) in EXACTLY:
        return EXACTLY[plugin, row.name]
    match row.kind:
        case Kind.SECTION:
            return None
        case Kind.CHOICE:
            return next((each for each in row.choices if each != row.default), row.choices[0])
        case Kind.BOOLEAN:
            return not row.default
        case Kind.INTEGER | Kind.NUMBER:
            return row.default if row.default not in (None, 0) and not row.is_required else _number(row)
        case Kind.DURATION:
            return "30 seconds"
        case _:
            return BY_NAME[row.name]


def _number(row: Option) -> int:
    return max(1_000, int(row.at_least or 0))
