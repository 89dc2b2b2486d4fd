"""The kinds of sinks, their options, and the delivery that each can really keep."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.client_settings import client_settings_complaint
from barnabas.pipelines.spec.format_options import ENCODE, format_complaints
from barnabas.pipelines.spec.options import REQUIRED, Kind, Option, Plugin, Value
from barnabas.pipelines.spec.texts import database_complaint


def _jdbc_complaints(options: Mapping[str, Value]) -> list[str]:
    if options.get("mode", "upsert") == "upsert" and not options.get("key"):
        return ["mode upsert needs 'key': the columns that tell rows apart"]
    return []


TOPIC = Plugin(
    "sink", "topic", "A topic; exactly once by one transaction per micro-batch.", (
        Option("topic", Kind.TEXT, None, "Where records go; else where the column `_topic` says.",
               aliases=("topics",)),
        Option("bootstrap", Kind.LIST, None, "Brokers to begin with; else the service's own.",
               aliases=("bootstrap.servers", "kafka.bootstrap.servers")),
        Option("compression", Kind.CHOICE, None, "Codec of the batches.",
               choices=("none", "gzip", "snappy", "lz4", "zstd"),
               aliases=("producer.override.compression.type",)),
        Option("kafka", Kind.MAP, None, "Client settings, handed on as `kafka.<name>`; secrets are references.", check=client_settings_complaint),
        *ENCODE,
    ),
    primary="topic", connect_class="TopicSink", check=format_complaints,
)  # fmt: skip

FILES = Plugin(
    "sink", "files", "Parquet, JSON or CSV files; exactly once by Spark's own log of the sink.", (
        Option("path", Kind.TEXT, REQUIRED, "Directory to write into.", aliases=("file",)),
        Option("format", Kind.CHOICE, "parquet", "What the files hold.", choices=("parquet", "json", "csv", "orc")),
        Option("partition_by", Kind.LIST, None, "Columns that become directories."),
        Option("files_per_batch", Kind.INTEGER, 1, "Files that one micro-batch makes (per directory).", at_least=1),
        Option("max_records_per_file", Kind.INTEGER, 5_000_000, "A larger file is split.", at_least=1),
        Option("compression", Kind.TEXT, None, "Codec of the files."),
        Option("format_options", Kind.MAP, None, "Further options of Spark's file sink."),
    ),
    primary="path", connect_class="FilesSink",
)  # fmt: skip

JDBC = Plugin(
    "sink", "jdbc", "A PostgreSQL table; exactly once by the batch's number in the same database transaction.", (
        Option("url", Kind.TEXT, REQUIRED, "postgresql://host:port/database, with or without `jdbc:` before it.",
               aliases=("connection.url",), check=database_complaint),
        Option("user", Kind.TEXT, None, "Who connects.", aliases=("connection.user",)),
        Option("password", Kind.TEXT, None, "A reference such as ${env:PGPASSWORD}.", secret=True,
               aliases=("connection.password",)),
        Option("table", Kind.TEXT, REQUIRED, "Table to write; it is created if it is not there.",
               aliases=("table.name.format",)),
        Option("mode", Kind.CHOICE, "upsert", "Replace rows of the same key, or add every row.",
               choices=("upsert", "insert"), aliases=("insert.mode",)),
        Option("key", Kind.LIST, None, "Columns of the primary key.", aliases=("pk.fields",)),
        Option("create", Kind.BOOLEAN, True, "Whether a table that is not there is created.", aliases=("auto.create",)),
    ),
    connect_class="JdbcSink", check=_jdbc_complaints,
)  # fmt: skip

CONSOLE = Plugin(
    "sink", "console", "Rows on the driver's terminal, for trials.", (
        Option("rows", Kind.INTEGER, 20, "Most rows shown of one micro-batch.", at_least=1),
    ),
    primary="rows", connect_class="ConsoleSink",
)  # fmt: skip

SINKS = {plugin.name: plugin for plugin in (TOPIC, FILES, JDBC, CONSOLE)}

EXACTLY_ONCE_SINKS = frozenset({"topic", "files", "jdbc"})
"""Sinks that recognise a micro-batch they have seen; all others may write one twice."""
