"""Settings of Confluent's JDBC connectors, translated to our options.

Confluent's sink and source have some forty settings. Those with an equivalent option are aliases of it
(`options.sinks`, `options.sources`). This module translates the rest: names built from topics, modes that
imply a column, and settings for unsupported features. Each of the latter is reported with its reason, all at
once. A setting that only tunes (retries, batch sizes) has nothing to tune here and is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Config = dict[str, Any]
Complain = Callable[[str, str], None]

FOREIGN = "io.confluent.connect.jdbc."
_TUNING = frozenset(
    (
        "batch.size", "max.retries", "retry.backoff.ms", "connection.attempts", "connection.backoff.ms",
        "validate.non.null", "table.poll.interval.ms", "trim.sensitive.log",
    )
)  # fmt: skip
_ALLOWED: Mapping[str, tuple[tuple[str, ...], str]] = {
    "dialect.name": (
        ("", "PostgreSqlDatabaseDialect", "MySqlDatabaseDialect", "SqliteDatabaseDialect"),
        "PostgreSQL, MySQL, MariaDB and SQLite are supported",
    ),
    "db.timezone": (("UTC",), "timestamps are written and read in UTC"),
    "quote.sql.identifiers": (("always", "ALWAYS"), "names are always quoted"),
    "table.types": (("TABLE",), "tables are read"),
    "fields.whitelist": (("",), "choose columns by a transform: ReplaceField with include"),
}
"""Settings that may only have the value that always holds, with the reason."""


def translated(config: Mapping[str, Any], role: str, complain: Complain) -> Config:
    """`config` with our option names; calls `complain(key, sentence)` for settings without an equivalent."""
    found: Config = {key: value for key, value in config.items() if key not in _TUNING}
    for key, (allowed, reason) in _ALLOWED.items():
        value = found.pop(key, None)
        if value is not None and str(value) not in allowed:
            complain(key, f"found {value!r}; {reason}")
    if role == "sink":
        _sink(found, complain)
    else:
        _source(found, complain)
    return found


_KEY_FROM = {"record_key": "record_key", "kafka": "coordinates"}


def _sink(config: Config, complain: Complain) -> None:
    if str(config.get("connector.class", "")).startswith(FOREIGN):
        # Confluent's defaults differ from ours, so they are set explicitly.
        config.setdefault("auto.create", "false")
        if "table" not in config:
            config.setdefault("table.name.format", "${topic}")
        if "mode" not in config:
            config.setdefault("insert.mode", "insert")
    if config.get("insert.mode") == "update":
        config.pop("insert.mode")
        complain("insert.mode", "update alone is not supported; expected upsert or insert")
    key = config.pop("pk.mode", "none")
    if key in _KEY_FROM:
        config["key_from"] = _KEY_FROM[key]
    elif key not in ("none", "record_value"):
        complain("pk.mode", f"found {key!r}; expected none, record_value, record_key or kafka")
    if key == "record_value" and not config.get("pk.fields") and not config.get("key"):
        complain("pk.fields", "is missing; expected the columns of the value that make the key")
    table = str(config.get("table.name.format", ""))
    if "${topic}" in table:
        topics = [each.strip() for each in str(config.get("topics", "")).split(",") if each.strip()]
        if len(topics) == 1:
            config["table.name.format"] = table.replace("${topic}", topics[0])
        else:
            config["table.name.format"] = "unknown"
            complain(
                "table.name.format",
                f"found {table!r} and {len(topics)} topics; a pipeline writes one table: expected its name,"
                " or one topic",
            )


_MODES = {"incrementing": "incrementing.column.name", "timestamp": "timestamp.column.name"}


def _source(config: Config, complain: Complain) -> None:
    mode = config.pop("mode", None)
    if mode is not None and mode not in _MODES:
        complain(
            "mode",
            f"found {mode!r}; new rows are found by one growing column: expected incrementing or timestamp",
        )
        config.setdefault("column", "unknown")
    elif mode is not None and not config.get(_MODES[mode]) and not config.get("column"):
        complain(_MODES[mode], f"is missing; mode {mode} needs the name of the column")
        config["column"] = "unknown"
    tables = str(config.get("table.whitelist") or config.get("table") or "")
    if "," in tables:
        complain("table.whitelist", f"found {tables!r}; a pipeline reads one table: make one for each")
    prefix = config.pop("topic.prefix", None)
    if prefix is not None and "topic" not in config:
        config["topic"] = f"{prefix}{'' if config.get('query') else tables.rpartition('.')[2]}"
    pause = config.pop("poll.interval.ms", None)
    if pause is not None and "trigger" not in config:
        config["trigger"] = f"{pause} ms"
