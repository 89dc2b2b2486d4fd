"""Types of sources and their options."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options.client_settings import client_settings_complaint
from barnabas.pipelines.spec.options.databases import database_complaint
from barnabas.pipelines.spec.options.formats import DECODE, decode_complaints
from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option, Plugin, Value
from barnabas.pipelines.spec.options.value_parsers import (
    assign_complaint,
    offsets_complaint,
    pattern_complaint,
    watermark_complaint,
)


def _topic_complaints(options: Mapping[str, Value]) -> list[str]:
    ways = [name for name in ("topics", "pattern", "assign") if options.get(name)]
    complaints = list(decode_complaints(options))
    if len(ways) != 1:
        found = " and ".join(map(repr, ways)) or "none of them"
        complaints.append(f"a topic source takes exactly one of 'topics', 'pattern', 'assign'; found {found}")
    if options.get("starting_offsets") and options.get("starting_timestamp"):
        complaints.append("'starting_offsets' and 'starting_timestamp' exclude each other")
    return complaints


def _files_complaints(options: Mapping[str, Value]) -> list[str]:
    if options.get("format", "json") in ("json", "csv", "parquet") and not options.get("schema"):
        return ["a stream of files needs 'schema' (format text does not)"]
    return []


def _jdbc_complaints(options: Mapping[str, Value]) -> list[str]:
    if bool(options.get("table")) == bool(options.get("query")):
        return ["a jdbc source takes exactly one of 'table' and 'query'"]
    return []


TOPIC = Plugin(
    "source", "topic", "Records of topics of any Kafka-protocol broker.", (
        Option("topics", Kind.LIST, None, "Names of the topics.", aliases=("topic",)),
        Option("pattern", Kind.TEXT, None, "Regular expression of topic names.", aliases=("topics.regex",),
               check=pattern_complaint),
        Option("assign", Kind.TEXT, None, 'Partitions as JSON: {"topic": [0, 1]}.', check=assign_complaint),
        Option("bootstrap", Kind.LIST, None, "Bootstrap servers. Default: those of the service.",
               aliases=("bootstrap.servers", "kafka.bootstrap.servers")),
        Option("starting_offsets", Kind.TEXT, None, "earliest (the default), latest, or offsets as JSON.",
               aliases=("consumer.override.auto.offset.reset",), check=offsets_complaint),
        Option("starting_timestamp", Kind.INTEGER, None, "Start at this time, in milliseconds since 1970."),
        Option("max_offsets_per_trigger", Kind.INTEGER, 500_000,
               "Maximum number of records per micro-batch. The sink's transaction timeout covers one micro-batch.", at_least=1,
               aliases=("consumer.override.max.poll.records",)),
        Option("min_partitions", Kind.INTEGER, None, "Minimum number of reading tasks. Not for topics and upserts: order needs one task per partition.", at_least=1,
               aliases=("tasks.max",)),
        Option("fail_on_data_loss", Kind.BOOLEAN, True, "Whether missing offsets stop the pipeline."),
        Option("group_id", Kind.TEXT, None, "Group whose offsets show the progress. Default: `pipeline-<name>`."),
        Option("headers", Kind.BOOLEAN, None, "Whether to read headers, as column `_headers`. Default: for topic sinks only."),
        Option("isolation_level", Kind.CHOICE, "read_committed", "Whether records of open and aborted transactions are read.",
               choices=("read_committed", "read_uncommitted"), aliases=("consumer.override.isolation.level",)),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may arrive.",
               check=watermark_complaint),
        Option("manifest", Kind.TEXT, None, "With engine segments: the file from `barnabas log manifest`, or its directory."),
        Option("kafka", Kind.MAP, None, "Client settings, passed on as `kafka.<name>`. Secrets must be references.", check=client_settings_complaint),
        *DECODE,
    ),
    primary="topics", connect_class="TopicSource", check=_topic_complaints,
)  # fmt: skip

FILES = Plugin(
    "source", "files", "Files that appear in a directory.", (
        Option("path", Kind.TEXT, REQUIRED, "Directory, or a pattern of paths.", aliases=("file",), is_address=True),
        Option("format", Kind.CHOICE, "json", "Format of the files.", choices=("json", "csv", "parquet", "text")),
        Option("schema", Kind.SCHEMA, None, "Columns of the files."),
        Option("max_files_per_trigger", Kind.INTEGER, None, "Maximum number of files per micro-batch.", at_least=1),
        Option("format_options", Kind.MAP, None, "More options of Spark's file source."),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may arrive.",
               check=watermark_complaint),
    ),
    primary="path", connect_class="FilesSource", check=_files_complaints,
)  # fmt: skip

JDBC = Plugin(
    "source", "jdbc", "Rows of a table or query of PostgreSQL, MySQL, MariaDB or SQLite, found by a growing column.", (
        Option("url", Kind.TEXT, REQUIRED, "postgresql://host:port/database, mysql://host:port/database or sqlite:path, with or without `jdbc:` before it.",
               aliases=("connection.url",), is_address=True, check=database_complaint),
        Option("user", Kind.TEXT, None, "Database user.", aliases=("connection.user",)),
        Option("password", Kind.TEXT, None, "A reference such as ${env:PGPASSWORD}.", secret=True,
               aliases=("connection.password",)),
        Option("table", Kind.TEXT, None, "Table to read.", aliases=("table.whitelist",)),
        Option("query", Kind.TEXT, None, "Query to read instead of a table."),
        Option("column", Kind.TEXT, REQUIRED, "Column that only grows: rows above its last value are new.",
               aliases=("incrementing.column.name", "timestamp.column.name")),
        Option("max_rows_per_trigger", Kind.INTEGER, 100_000, "Maximum number of rows per micro-batch.", at_least=1,
               aliases=("batch.max.rows",)),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may arrive.",
               check=watermark_complaint),
    ),
    connect_class="JdbcSource", check=_jdbc_complaints,
)  # fmt: skip

RATE = Plugin(
    "source", "rate", "Numbered rows at a steady rate, for tests.", (
        Option("rows_per_second", Kind.INTEGER, 10, "Rows per second.", at_least=1),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may arrive.",
               check=watermark_complaint),
    ),
    primary="rows_per_second", connect_class="RateSource",
)  # fmt: skip

SOURCES = {plugin.name: plugin for plugin in (TOPIC, FILES, JDBC, RATE)}
