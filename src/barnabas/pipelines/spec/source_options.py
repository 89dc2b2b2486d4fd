"""The kinds of sources and their options."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.client_settings import client_settings_complaint
from barnabas.pipelines.spec.format_options import DECODE, decode_complaints
from barnabas.pipelines.spec.options import REQUIRED, Kind, Option, Plugin, Value
from barnabas.pipelines.spec.texts import (
    assign_complaint,
    database_complaint,
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
        Option("bootstrap", Kind.LIST, None, "Brokers to begin with; else the service's own.",
               aliases=("bootstrap.servers", "kafka.bootstrap.servers")),
        Option("starting_offsets", Kind.TEXT, None, "earliest (the default), latest, or offsets as JSON.",
               aliases=("consumer.override.auto.offset.reset",), check=offsets_complaint),
        Option("starting_timestamp", Kind.INTEGER, None, "Begin at this time, in milliseconds since 1970."),
        Option("max_offsets_per_trigger", Kind.INTEGER, None, "Most records of one micro-batch.", at_least=1,
               aliases=("consumer.override.max.poll.records",)),
        Option("min_partitions", Kind.INTEGER, None, "Fewest tasks to read with.", at_least=1,
               aliases=("tasks.max",)),
        Option("fail_on_data_loss", Kind.BOOLEAN, True, "Stop when offsets are gone, rather than go on."),
        Option("group_id", Kind.TEXT, None, "Group whose offsets show the progress; else `pipeline-<name>`."),
        Option("headers", Kind.BOOLEAN, False, "Bring the headers along, as column `_headers`."),
        Option("isolation_level", Kind.CHOICE, "read_committed", "Whether open transactions are seen.",
               choices=("read_committed", "read_uncommitted"), aliases=("consumer.override.isolation.level",)),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may come.",
               check=watermark_complaint),
        Option("manifest", Kind.TEXT, None, "With engine segments: what `barnabas log manifest` wrote, a file or its directory."),
        Option("kafka", Kind.MAP, None, "Client settings, handed on as `kafka.<name>`; secrets are references.", check=client_settings_complaint),
        *DECODE,
    ),
    primary="topics", connect_class="TopicSource", check=_topic_complaints,
)  # fmt: skip

FILES = Plugin(
    "source", "files", "Files that appear in a directory.", (
        Option("path", Kind.TEXT, REQUIRED, "Directory, or a pattern of paths.", aliases=("file",)),
        Option("format", Kind.CHOICE, "json", "What the files hold.", choices=("json", "csv", "parquet", "text")),
        Option("schema", Kind.SCHEMA, None, "Columns of the files."),
        Option("max_files_per_trigger", Kind.INTEGER, None, "Most files of one micro-batch.", at_least=1),
        Option("format_options", Kind.MAP, None, "Further options of Spark's file source."),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may come.",
               check=watermark_complaint),
    ),
    primary="path", connect_class="FilesSource", check=_files_complaints,
)  # fmt: skip

JDBC = Plugin(
    "source", "jdbc", "Rows of a PostgreSQL table or query, taken up by a growing column.", (
        Option("url", Kind.TEXT, REQUIRED, "postgresql://host:port/database, with or without `jdbc:` before it.",
               aliases=("connection.url",), check=database_complaint),
        Option("user", Kind.TEXT, None, "Who connects.", aliases=("connection.user",)),
        Option("password", Kind.TEXT, None, "A reference such as ${env:PGPASSWORD}.", secret=True,
               aliases=("connection.password",)),
        Option("table", Kind.TEXT, None, "Table to read.", aliases=("table.whitelist",)),
        Option("query", Kind.TEXT, None, "Query to read in place of a table."),
        Option("column", Kind.TEXT, REQUIRED, "Column that only grows: rows beyond its last value are new.",
               aliases=("incrementing.column.name", "timestamp.column.name")),
        Option("max_rows_per_trigger", Kind.INTEGER, 100_000, "Most rows of one micro-batch.", at_least=1,
               aliases=("batch.max.rows",)),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may come.",
               check=watermark_complaint),
    ),
    connect_class="JdbcSource", check=_jdbc_complaints,
)  # fmt: skip

RATE = Plugin(
    "source", "rate", "Numbered rows at a steady rate, for trials.", (
        Option("rows_per_second", Kind.INTEGER, 10, "How many.", at_least=1),
        Option("watermark", Kind.TEXT, None, "`<column> <delay>`: how late rows of this source may come.",
               check=watermark_complaint),
    ),
    primary="rows_per_second", connect_class="RateSource",
)  # fmt: skip

SOURCES = {plugin.name: plugin for plugin in (TOPIC, FILES, JDBC, RATE)}
