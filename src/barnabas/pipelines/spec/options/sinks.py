"""Types of sinks, their options, and the delivery that each guarantees."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options.client_settings import client_settings_complaint
from barnabas.pipelines.spec.options.databases import database_complaint
from barnabas.pipelines.spec.options.formats import ENCODE, format_complaints
from barnabas.pipelines.spec.options.http import HTTP
from barnabas.pipelines.spec.options.mirror import MIRROR
from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option, Plugin, Value, duration_ms
from barnabas.pipelines.spec.options.value_parsers import password_complaint, size_complaint
from barnabas.security.identity.secret_references import has_reference


def _jdbc_complaints(options: Mapping[str, Value]) -> list[str]:
    is_upsert = options.get("mode", "upsert") == "upsert"
    key_from = options.get("key_from", "value")
    complaints = []
    if is_upsert and key_from == "value" and not options.get("key"):
        complaints.append("mode upsert needs 'key': the columns that tell rows apart")
    if options.get("delete") is True and (not is_upsert or key_from != "record_key"):
        complaints.append(
            "'delete' needs mode upsert and key_from: record_key, because a tombstone has only its key"
        )
    return complaints


_SECRET_WORDS = (
    "password",
    "secret",
    "token",
    "credential",
    "access-key",
    "access_key",
    "account-key",
    "account_key",
    "sas",
)
KEEP_MS_MIN = 3_600_000
"""Shortest time that a table keeps old versions: readers and writers of that age must have ended."""
KEEP_MS_MAX = 36_500 * 86_400_000
"""Longest time: a moment so long ago must be one that a calendar has."""


def _catalog_complaint(options: Mapping[str, Value]) -> str | None:
    loading = next((name for name in options if "impl" in name.lower()), None)
    if loading is not None:
        return f"found {loading!r}, which names a class to load; expected properties of one of pyiceberg's catalogues"
    return _secrets_complaint(options)


def _secrets_complaint(options: Mapping[str, Value]) -> str | None:
    for name, value in options.items():
        is_secret = any(word in name.lower() for word in _SECRET_WORDS)
        if is_secret and not has_reference(value):
            return f"found a value for {name!r} in plain text; expected a reference such as ${{env:NAME}}"
        if (complaint := password_complaint(str(value))) is not None:
            return complaint
    return None


def _keep_complaint(text: str) -> str | None:
    if has_reference(text):
        return None
    if duration_ms(text) > KEEP_MS_MAX:
        return f"found {text!r}; expected at most 36500 days"
    if duration_ms(text) < KEEP_MS_MIN:
        return f"found {text!r}; expected at least an hour: readers may still use an older version"
    return None


def _table_complaints(options: Mapping[str, Value]) -> list[str]:
    complaints = []
    kind = options.get("format", "delta")
    is_named = bool(options.get("catalog") or options.get("table"))
    if kind == "delta" and is_named:
        complaints.append("format delta has no catalogue; expected 'path', the directory of the table")
    elif is_named and options.get("path"):
        complaints.append(
            "has 'path' and 'catalog'; expected one of them: a catalogue knows the paths of its tables"
        )
    elif is_named and not (options.get("catalog") and "." in str(options.get("table") or "")):
        complaints.append("a table of a catalogue needs 'catalog' and 'table', such as 'shop.orders'")
    elif not is_named and not options.get("path"):
        complaints.append(
            "needs 'path', the directory of the table"
            + ("" if kind == "delta" else ", or 'catalog' and 'table'")
        )
    if options.get("mode") == "append" and options.get("key"):
        complaints.append("mode append adds every row and has no 'key'; expected mode: upsert")
    return complaints


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
        Option("files_per_batch", Kind.INTEGER, None, "Number of files per micro-batch and directory. Default: one; without `partition_by`, one more for every 100,000 records, up to the number of tasks.", at_least=1),
        Option("max_records_per_file", Kind.INTEGER, 5_000_000, "A larger file is split.", at_least=1),
        Option("compression", Kind.TEXT, None, "Codec of the files."),
        Option("format_options", Kind.MAP, None, "More options of Spark's file sink."),
    ),
    primary="path", connect_class="FilesSink",
)  # fmt: skip

JDBC = Plugin(
    "sink", "jdbc", "A table of PostgreSQL, MySQL, MariaDB or SQLite. Exactly once: the batch's number in the same database transaction.", (
        Option("url", Kind.TEXT, REQUIRED, "postgresql://host:port/database, mysql://host:port/database or sqlite:path, with or without `jdbc:` before it.",
               aliases=("connection.url",), is_address=True, check=database_complaint),
        Option("user", Kind.TEXT, None, "Database user.", aliases=("connection.user",)),
        Option("password", Kind.TEXT, None, "A reference such as ${env:PGPASSWORD}.", secret=True,
               aliases=("connection.password",)),
        Option("table", Kind.TEXT, REQUIRED, "Table to write. It is created if it does not exist.",
               aliases=("table.name.format",)),
        Option("mode", Kind.CHOICE, "upsert", "Replace rows of the same key, or add every row.",
               choices=("upsert", "insert"), aliases=("insert.mode",)),
        Option("key", Kind.LIST, None, "Columns of the primary key. With `key_from: record_key`: fields of a JSON key (default: all), or the column's name for another key.",
               aliases=("pk.fields",)),
        Option("key_from", Kind.CHOICE, "value", "Where the key's columns come from: the value, the key of the record, or its topic, partition and offset.",
               choices=("value", "record_key", "coordinates")),
        Option("delete", Kind.BOOLEAN, False, "Whether a tombstone deletes the row of its key. Needs `key_from: record_key`.",
               aliases=("delete.enabled",)),
        Option("evolve", Kind.BOOLEAN, False, "Whether to add columns that the table lacks.", aliases=("auto.evolve",)),
        Option("create", Kind.BOOLEAN, True, "Whether to create a table that does not exist.", aliases=("auto.create",)),
    ),
    connect_class="JdbcSink", check=_jdbc_complaints,
)  # fmt: skip

TABLE = Plugin(
    "sink", "table", "A Delta Lake or Apache Iceberg table. Exactly once: the batch's mark in the commit with its files.", (
        Option("format", Kind.CHOICE, "delta", "Format of the table.", choices=("delta", "iceberg")),
        Option("path", Kind.TEXT, None, "Directory of the table. An Iceberg table has a SQLite catalogue in it.", is_address=True),
        Option("catalog", Kind.MAP, None, "Catalogue of an Iceberg table, as properties of pyiceberg (`type`, `uri`, `warehouse` …). Secrets must be references.",
               check=_catalog_complaint),
        Option("table", Kind.TEXT, None, "Name of an Iceberg table in its catalogue, such as `shop.orders`."),
        Option("mode", Kind.CHOICE, None, "Add every row, or replace rows of the same key, where a tombstone deletes its row. Default: upsert for compacted topics, append for others.",
               choices=("append", "upsert")),
        Option("key", Kind.LIST, None, "Columns that tell rows apart, for upsert. Default: the record's key."),
        Option("partition_by", Kind.LIST, None, "Columns by which a new table is partitioned."),
        Option("evolve", Kind.CHOICE, "add_columns", "Whether new columns of the rows are added to the table, or stop the pipeline (strict).",
               choices=("add_columns", "strict")),
        Option("target_file_size", Kind.TEXT, "128 MB", "Size at which a file is closed, and up to which small files are compacted.", check=size_complaint),
        Option("compression", Kind.CHOICE, "zstd", "Codec of the files.", choices=("zstd", "snappy", "gzip", "none")),
        Option("record_columns", Kind.BOOLEAN, False, "Whether the table has `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and `_tombstone` too, and `_headers` where the source has them."),
        Option("maintenance", Kind.INTEGER, 100, "Micro-batches between two rounds of maintenance: compaction, expiry of old versions, removal of unneeded files. 0: no maintenance.", at_least=0),
        Option("keep", Kind.DURATION, "7 days", "How long maintenance keeps old versions, and files that no version needs.", check=_keep_complaint),
        Option("create", Kind.BOOLEAN, True, "Whether to create a table that does not exist."),
        Option("storage", Kind.MAP, None, "Options of the storage that `path` is on. Secrets must be references.", check=_secrets_complaint),
    ),
    primary="path", connect_class="TableSink", check=_table_complaints,
)  # fmt: skip

CONSOLE = Plugin(
    "sink", "console", "Rows on the driver's terminal, for tests.", (
        Option("rows", Kind.INTEGER, 20, "Maximum number of rows shown per micro-batch.", at_least=1),
        Option("record_columns", Kind.BOOLEAN, False,
               "Whether to show `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and `_tombstone` too."),
    ),
    primary="rows", connect_class="ConsoleSink",
)  # fmt: skip

SINKS = {plugin.name: plugin for plugin in (TOPIC, FILES, JDBC, TABLE, HTTP, MIRROR, CONSOLE)}

EXACTLY_ONCE_SINKS = frozenset({"topic", "files", "jdbc", "table", "mirror"})
"""Sinks that recognise a repeated micro-batch. All others may write one twice."""
