"""Column analysis: follows a spec's columns from the source through the transforms and finds unknown names.

Some columns are unknown without Spark or the data: an inferred schema, a schema registry, a user's function.
From there on every name passes. So each complaint is certain.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence

from barnabas.pipelines.spec.model import Part
from barnabas.pipelines.spec.options.reserved_words import RESERVED, TOMBSTONE
from barnabas.pipelines.spec.sql.columns import (
    UNKNOWN,
    Columns,
    Missing,
    columns_of,
    missing_in_expression,
    missing_in_query,
)
from barnabas.pipelines.spec.sql.ddl import columns_in, struct_fields
from barnabas.pipelines.spec.sql.grouping import aggregates, ungrouped_columns
from barnabas.security.identity.secret_references import has_reference

WHOLE = "value"
Complaint = tuple[tuple[str | int, ...], str, int]
"""Path in the spec, message, and the number of lines below the path."""


def complaints(source: Part, transforms: Sequence[Part], sink: Part | None) -> Iterator[Complaint]:
    """Every name that matches no column. The sink is None where functions stand before it."""
    columns = source_columns(source)
    has_watermark = bool(source.get("watermark"))
    for at, part in enumerate(transforms):
        yield from ((("transforms", at), text, line) for text, line in _in_transform(part, columns))
        if not has_watermark and part.type == "sql" and not has_reference(part["query"]):
            yield from ((("transforms", at), text, 0) for text in _without_watermark(part["query"]))
        has_watermark = has_watermark or part.type not in _STATELESS
        columns = after(part, columns)
    if sink is not None:
        keys = sink.get("key") or () if sink.get("key_from", "value") == "value" else ()
        named = [*(sink.get("partition_by") or ()), *keys]
        yield from ((("sink",), text, line) for text, line in _absent(named, columns))


def _without_watermark(query: str) -> Iterator[str]:
    if aggregates(query):
        yield (
            "an aggregation never ends, because rows do not stop arriving: use the transform window, or set"
            " watermark: '<column> <delay>' at the source and group by window(<column>, '1 minute')"
        )


def source_columns(part: Part) -> Columns:
    if part.type == "rate":
        return Columns({"timestamp": "TIMESTAMP", WHOLE: "BIGINT"})
    schema = part.get("schema")
    reserved: dict[str, str | None] = dict.fromkeys(RESERVED) if part.type == "topic" else {}
    if part.type == "topic" and part["format"] in ("text", "raw"):
        return Columns({WHOLE: None, **reserved})
    is_given = schema is not None and not has_reference(schema)
    if not is_given or part.get("format") not in ("json", "csv", "parquet"):
        return UNKNOWN
    return Columns({**columns_in(schema), **reserved})


def after(part: Part, columns: Columns) -> Columns:
    """Columns that a transform leaves."""
    change = _CHANGES.get(part.type)
    if change is None:
        return columns if part.type in _KEEPING else UNKNOWN
    if part.get("target") == "key":
        return columns
    changed = change(part, columns)
    if part.get("predicate") is not None:  # rows that fail the predicate keep their columns
        return Columns({**columns.types, **changed.types}, columns.is_open or changed.is_open)
    return changed


_STATELESS = frozenset(
    (
        "sql", "filter",
        "MaskField", "ValueToKey", "Cast", "TimestampConverter", "TimestampRouter", "RegexRouter", "Filter",
        "DropHeaders", "InsertHeader", "InsertField", "ReplaceField", "Flatten", "HoistField", "ExtractField",
    )
)  # fmt: skip
"""Transforms that set no watermark."""
_KEEPING = frozenset(
    (
        "filter", "deduplicate", "MaskField", "ValueToKey", "Cast", "TimestampConverter", "TimestampRouter",
        "RegexRouter", "Filter", "DropHeaders", "InsertHeader",
    )
)  # fmt: skip


def _reserved(columns: Columns) -> dict[str, str | None]:
    return {name: kind for name, kind in columns.types.items() if name in RESERVED}


def _values(columns: Columns) -> dict[str, str | None]:
    return {name: kind for name, kind in columns.types.items() if name not in RESERVED}


def _queried(part: Part, columns: Columns) -> Columns:
    return UNKNOWN if has_reference(part["query"]) else columns_of(part["query"], columns)


def _windowed(part: Part, _: Columns) -> Columns:
    names = [*(part.get("group_by") or ()), *(part.get("aggregates") or {"count": ""})]
    return Columns(dict.fromkeys(["window_start", "window_end", *names]))


def _joined(part: Part, columns: Columns) -> Columns:
    if part["how"] == "leftsemi":
        return columns
    other = source_columns(part["source"])
    return Columns({**_values(other), **columns.types}, columns.is_open or other.is_open)


def _inserted(part: Part, columns: Columns) -> Columns:
    options = ("static_field", "topic_field", "partition_field", "offset_field", "timestamp_field")
    names = [str(part[option]).rstrip("!?") for option in options if part.get(option)]
    return Columns({**columns.types, **dict.fromkeys(names)}, columns.is_open)


def _replaced(part: Part, columns: Columns) -> Columns:
    renames = dict(pair.split(":", 1) for pair in part.get("renames") or ())
    exclude, include = part.get("exclude") or (), part.get("include")
    kept = {
        renames.get(name, name): kind
        for name, kind in _values(columns).items()
        if name not in exclude and (include is None or name in include)
    }
    return Columns({**kept, **_reserved(columns)}, columns.is_open)


def _flattened(part: Part, columns: Columns) -> Columns:
    flat: dict[str, str | None] = {}
    is_open = columns.is_open

    def walk(name: str, kind: str | None) -> None:
        nonlocal is_open
        fields = None if kind is None else struct_fields(kind)
        is_open = is_open or kind is None
        if fields is None:
            flat[name] = kind
        else:
            for inner, inner_kind in fields.items():
                walk(f"{name}{part['delimiter']}{inner}", inner_kind)

    for name, kind in _values(columns).items():
        walk(name, kind)
    return Columns({**flat, **_reserved(columns)}, is_open)


_CHANGES: Mapping[str, Callable[[Part, Columns], Columns]] = {
    "sql": _queried,
    "window": _windowed,
    "join": _joined,
    "InsertField": _inserted,
    "ReplaceField": _replaced,
    "Flatten": _flattened,
    "HoistField": lambda part, columns: Columns({part["field"]: None, **_reserved(columns)}),
    "ExtractField": lambda _, columns: Columns({WHOLE: None, **_reserved(columns)}),
}


def _in_transform(part: Part, columns: Columns) -> Iterator[tuple[str, int]]:
    if columns.is_open:
        return
    if part.type == "sql" and not has_reference(part["query"]):
        yield from _said(missing_in_query(part["query"], columns), columns)
        for name, line in ungrouped_columns(part["query"], columns):
            yield (
                f"{name!r} is neither grouped nor aggregated; add it to GROUP BY, or write first({name})",
                line,
            )
    elif part.type == "filter" and not has_reference(part["where"]):
        yield from _said(missing_in_expression(part["where"], columns), columns)
    elif part.type == "window":
        for text in (part.get("aggregates") or {}).values():
            yield from _said(missing_in_expression(text, columns), columns)
    predicate = part.get("predicate")
    if predicate is not None and predicate != TOMBSTONE and not has_reference(predicate):
        yield from _said(missing_in_expression(predicate, columns), columns)
    yield from _absent(_named(part), columns)


def _named(part: Part) -> list[str]:
    """Columns that a transform's options name."""
    if part.get("target") == "key":
        return []
    names: list[str] = []
    if part.type == "window":
        names = [part["time"], *(part.get("group_by") or ())]
    elif part.type == "deduplicate":
        names = [*part["keys"], *([part["time"]] if part.get("time") else [])]
    elif part.type == "join":
        names = list(part["on"])
    elif part.type in ("MaskField", "ValueToKey"):
        names = list(part["fields"])
    elif part.type == "TimestampConverter":
        names = [part["field"]]
    elif part.type == "ExtractField":
        names = [part["field"].partition(".")[0]]
    elif part.type == "Cast":
        names = [item.partition(":")[0] for item in part["spec"] if ":" in item]
    return names


def _absent(names: Sequence[str], columns: Columns) -> Iterator[tuple[str, int]]:
    missing = [Missing(name, 0) for name in names if not has_reference(name) and not columns.has(name)]
    yield from _said(missing, columns)


def _said(missing: Sequence[Missing], columns: Columns) -> Iterator[tuple[str, int]]:
    names = columns.names()
    for each in missing:
        close = difflib.get_close_matches(each.name, names, n=1)
        shown = [name for name in names if name not in RESERVED]
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(shown)}"
        yield f"there is no column {each.name!r}; {hint}", each.line
