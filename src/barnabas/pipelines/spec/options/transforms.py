"""Types of transforms and predicates, and their options.

Names with capital letters are Kafka Connect's single-message transforms. Their options have Connect's names
with `_` for `.`; the dotted spelling is accepted too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from barnabas.pipelines.spec.options.option import REQUIRED, Kind, Option, Plugin, Value
from barnabas.pipelines.spec.options.value_parsers import pairs_complaint
from barnabas.pipelines.spec.sql.text import query_complaint, sql_complaint
from barnabas.security.identity.secret_references import has_reference

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
KAFKA_PACKAGE = "org.apache.kafka.connect.transforms."

TARGET = Option(
    "target", Kind.CHOICE, "value", "Whether it changes the value or the key.", choices=("value", "key")
)
WHEN = (
    Option("predicate", Kind.TEXT, None, "SQL condition, or a named predicate. Other rows pass unchanged."),
    Option("negate", Kind.BOOLEAN, False, "Negate the predicate."),
)  # fmt: skip


def _smt(name: str, doc: str, *options: Option, primary: str | None = None, targets: bool = True) -> Plugin:
    rows = (*options, *((TARGET,) if targets else ()), *WHEN)
    return Plugin("transform", name, doc, rows, primary, KAFKA_PACKAGE + name)


def _text(name: str, doc: str, default: Value = None, *, alias: str = "") -> Option:
    return Option(name, Kind.TEXT, default, doc, aliases=(alias or name.replace("_", "."),))


def _list(name: str, doc: str, default: Value = None) -> Option:
    return Option(name, Kind.LIST, default, doc, aliases=(name.replace("_", "."),))


SINGLE_MESSAGE = (
    _smt("InsertField", "Adds columns from the record's coordinates, or a constant.",
         _text("static_field", "Column of the constant."), _text("static_value", "The constant."),
         _text("topic_field", "Column of the topic's name."), _text("partition_field", "Column of the partition."),
         _text("offset_field", "Column of the offset."), _text("timestamp_field", "Column of the record's time.")),
    _smt("ReplaceField", "Drops, keeps and renames columns.",
         _list("exclude", "Columns to drop."), _list("include", "Columns to keep; all others are dropped."),
         Option("renames", Kind.LIST, None, "`old:new` pairs.", check=pairs_complaint)),
    _smt("MaskField", "Blanks columns, or replaces their values.",
         _list("fields", "Columns to mask.", REQUIRED), _text("replacement", "Replacement value."),
         primary="fields"),
    _smt("ValueToKey", "Makes the key from columns of the value.",
         _list("fields", "Columns of the key.", REQUIRED), primary="fields", targets=False),
    _smt("ExtractField", "The value (or key) becomes one of its fields.",
         _text("field", "The field.", REQUIRED), primary="field"),
    _smt("Cast", "Changes the types of columns.",
         _list("spec", "`column:type` pairs; Connect's or Spark's names of types.", REQUIRED), primary="spec"),
    _smt("TimestampConverter", "Turns times into other forms.",
         _text("field", "The column.", REQUIRED),
         Option("target_type", Kind.CHOICE, REQUIRED, "Target form.", aliases=("target.type",),
                choices=("string", "unix", "Date", "Time", "Timestamp")),
         _text("format", "Pattern of text, e.g. yyyy-MM-dd HH:mm:ss."),
         Option("unix_precision", Kind.CHOICE, "milliseconds", "Unit of unix time.", aliases=("unix.precision",),
                choices=("seconds", "milliseconds", "microseconds"))),
    _smt("TimestampRouter", "Puts the record's time into the topic's name.",
         _text("topic_format", "Pattern with ${topic} and ${timestamp}.", "${topic}-${timestamp}"),
         _text("timestamp_format", "Pattern of the time.", "yyyyMMdd"), targets=False),
    _smt("RegexRouter", "Rewrites the topic's name.",
         _text("regex", "Regular expression that the whole name must match.", REQUIRED),
         _text("replacement", "New name; $1 is the first group.", REQUIRED), targets=False),
    _smt("HoistField", "Wraps the value (or key) in one field.",
         _text("field", "Name of the field.", REQUIRED), primary="field"),
    _smt("Flatten", "Nested fields become columns.",
         _text("delimiter", "Text between the names.", "."), primary="delimiter"),
    _smt("Filter", "Drops the records that the predicate holds for.", targets=False),
    _smt("DropHeaders", "Removes headers.", _list("headers", "Names of the headers.", REQUIRED),
         primary="headers", targets=False),
    _smt("InsertHeader", "Adds a header.", _text("header", "Name of the header.", REQUIRED),
         _text("value_literal", "Value of the header.", REQUIRED), targets=False),
)  # fmt: skip


def _query_complaints(options: Mapping[str, Value]) -> list[str]:
    complaint = query_complaint(options["query"])
    return [complaint] if complaint else []


def _condition_complaints(options: Mapping[str, Value]) -> list[str]:
    complaint = sql_complaint(options["where"])
    return [complaint] if complaint else []


def _window_complaints(options: Mapping[str, Value]) -> list[str]:
    aggregates = options.get("aggregates") or {}
    found = ((name, sql_complaint(text)) for name, text in aggregates.items())
    return [f"aggregates.{name}: {complaint}" for name, complaint in found if complaint]


def _function_complaints(options: Mapping[str, Value]) -> list[str]:
    function = options["function"]
    if has_reference(function) or _FUNCTION.fullmatch(function):
        return []
    return [f"found {function!r}; expected module:function, such as mymodule:clean"]


SQL = Plugin("transform", "sql", "A query over the rows so far, under the name `input`.", (
    Option("query", Kind.TEXT, REQUIRED, "SELECT … FROM input …"),
), primary="query", check=_query_complaints)  # fmt: skip

FILTER = Plugin("transform", "filter", "Keeps the rows that a condition holds for.", (
    Option("where", Kind.TEXT, REQUIRED, "SQL condition."),
), primary="where", check=_condition_complaints)  # fmt: skip

WINDOW = Plugin("transform", "window", "Aggregates per window of event time and key.", (
    Option("time", Kind.TEXT, REQUIRED, "Column of event time."),
    Option("size", Kind.DURATION, REQUIRED, "Length of a window."),
    Option("slide", Kind.DURATION, None, "Distance between windows. Default: windows do not overlap."),
    Option("watermark", Kind.DURATION, "10 seconds", "How late a row may arrive and still count."),
    Option("group_by", Kind.LIST, None, "Columns that make groups."),
    Option("aggregates", Kind.MAP, None, "`name: SQL aggregate`. Default: `count: count(*)`."),
    Option("emit", Kind.CHOICE, "final", "Emit windows when they are complete, or on every change.",
           choices=("final", "updates")),
), primary="size", check=_window_complaints)  # fmt: skip

DEDUPLICATE = Plugin("transform", "deduplicate", "Keeps the first row of each key.", (
    Option("keys", Kind.LIST, REQUIRED, "Columns that identify a row."),
    Option("time", Kind.TEXT, None, "Column of event time. Without it, keys are kept for ever."),
    Option("watermark", Kind.DURATION, "10 minutes", "How long a key is kept."),
), primary="keys")  # fmt: skip


def _join_complaints(options: Mapping[str, Value]) -> list[str]:
    if (
        options.get("how") not in (None, "inner")
        and not options.get("static", True)
        and not options.get("time")
    ):
        return ["an outer join of two streams needs 'time' (and 'within'): otherwise its state never ends"]
    return []


JOIN = Plugin("transform", "join", "Joins another source: a stream, or a static table.", (
    Option("source", Kind.PART, REQUIRED, "The other side, like a pipeline's `source`."),
    Option("on", Kind.LIST, REQUIRED, "Columns of the same name on both sides."),
    Option("how", Kind.CHOICE, "inner", "Kind of join.", choices=("inner", "left", "leftsemi")),
    Option("static", Kind.BOOLEAN, True, "Whether the other side is read completely for every batch, or as a stream."),
    Option("versions", Kind.CHOICE, "latest", "For a static topic: the last record of each key, or all records.",
           choices=("latest", "all")),
    Option("time", Kind.TEXT, None, "Column of event time on both sides, for two streams."),
    Option("within", Kind.DURATION, "1 minute", "How far apart in time two rows may be."),
    Option("watermark", Kind.DURATION, "1 minute", "How late a row may arrive."),
), check=_join_complaints)  # fmt: skip

PYTHON = Plugin("transform", "python", "A user's function from DataFrame to DataFrame.", (
    Option("function", Kind.TEXT, REQUIRED, "`module:function`."),
    Option("arguments", Kind.MAP, None, "Keyword arguments, as text."),
), primary="function", check=_function_complaints)  # fmt: skip

TRANSFORMS = {
    plugin.name: plugin for plugin in (SQL, FILTER, WINDOW, DEDUPLICATE, JOIN, PYTHON, *SINGLE_MESSAGE)
}
