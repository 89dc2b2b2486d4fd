"""Types of sinks, their options, and the delivery that each guarantees."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options.client_settings import client_settings_complaint
from barnabas.pipelines.spec.options.formats import ENCODE, format_complaints
from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option, Plugin, Value
from barnabas.pipelines.spec.options.value_parsers import database_complaint


def _jdbc_complaints(options: Mapping[str, Value]) -> list[str]:
    if options.get("mode", "upsert") == "upsert" and not options.get("key"):
        return ["mode upsert needs 'key': the columns that tell rows apart"]
    return []


TOPIC = Plugin(
    "sink", "topic", "A topic. Exactly once: one transaction per micro-batch.", (
        Option("topic", Kind.TEXT, None, "Topic of the records. Default: the column `_topic`.",
               aliases=("topics",)),
        Option("bootstrap", Kind.LIST, None, "Bootstrap servers. Default: those of the service.",
               aliases=("bootstrap.servers", "kafka.bootstrap.servers")),
        Option("compression", Kind.CHOICE, None, "Codec of the batches.",
               choices=("none", "gzip", "snappy", "lz4", "zstd"),
               aliases=("producer.override.compression.type",)),
        Option("kafka", Kind.MAP, None, "Client settings, passed on as `kafka.<name>`. Secrets must be references.", check=client_settings_complaint),
        *ENCODE,
    ),
    primary="topic", connect_class="TopicSink", check=format_complaints,
)  # fmt: skip

FILES = Plugin(
    "sink", "files", "Parquet, JSON or CSV files. Exactly once: Spark's log of the sink.", (
        Option("path", Kind.TEXT, REQUIRED, "Directory to write into.", aliases=("file",), is_address=True),
        Option("format", Kind.CHOICE, "parquet", "Format of the files.", choices=("parquet", "json", "csv", "orc")),
        Option("partition_by", Kind.LIST, None, "Columns that become directories."),
        Option("files_per_batch", Kind.INTEGER, 1, "Number of files per micro-batch and directory.", at_least=1),
        Option("max_records_per_file", Kind.INTEGER, 5_000_000, "A larger file is split.", at_least=1),
        Option("compression", Kind.TEXT, None, "Codec of the files."),
        Option("format_options", Kind.MAP, None, "More options of Spark's file sink."),
    ),
    primary="path", connect_class="FilesSink",
)  # fmt: skip

JDBC = Plugin(
    "sink", "jdbc", "A PostgreSQL table. Exactly once: the batch's number in the same database transaction.", (
        Option("url", Kind.TEXT, REQUIRED, "postgresql://host:port/database, with or without `jdbc:` before it.",
               aliases=("connection.url",), is_address=True, check=database_complaint),
        Option("user", Kind.TEXT, None, "Database user.", aliases=("connection.user",)),
        Option("password", Kind.TEXT, None, "A reference such as ${env:PGPASSWORD}.", secret=True,
               aliases=("connection.password",)),
        Option("table", Kind.TEXT, REQUIRED, "Table to write. It is created if it does not exist.",
               aliases=("table.name.format",)),
        Option("mode", Kind.CHOICE, "upsert", "Replace rows of the same key, or add every row.",
               choices=("upsert", "insert"), aliases=("insert.mode",)),
        Option("key", Kind.LIST, None, "Columns of the primary key.", aliases=("pk.fields",)),
        Option("create", Kind.BOOLEAN, True, "Whether to create a table that does not exist.", aliases=("auto.create",)),
    ),
    connect_class="JdbcSink", check=_jdbc_complaints,
)  # fmt: skip

CONSOLE = Plugin(
    "sink", "console", "Rows on the driver's terminal, for tests.", (
        Option("rows", Kind.INTEGER, 20, "Maximum number of rows shown per micro-batch.", at_least=1),
        Option("record_columns", Kind.BOOLEAN, False,
               "Whether to show `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and `_tombstone` too."),
    ),
    primary="rows", connect_class="ConsoleSink",
)  # fmt: skip

SINKS = {plugin.name: plugin for plugin in (TOPIC, FILES, JDBC, CONSOLE)}

EXACTLY_ONCE_SINKS = frozenset({"topic", "files", "jdbc"})
"""Sinks that recognise a repeated micro-batch. All others may write one twice."""
