"""Check of a DDL schema (`id BIGINT, tags ARRAY<STRING>`) without Spark, with the location of each error.

Spark parses the schema again when the pipeline runs. This check reports a misspelt type before Spark starts.

sqlglot does not serve here. It stops at the first error, without a column name. It accepts types that Spark
lacks (TEXT, UUID, INT32), and refuses valid schemas (VOID, a struct field named `select`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

SIMPLE = frozenset(
    (
        "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT",
        "REAL", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "BINARY",
        "DECIMAL", "DEC", "NUMERIC", "VARIANT", "VOID", "INTERVAL",
    )
)  # fmt: skip
_SIZED = re.compile(
    r"(DECIMAL|DEC|NUMERIC|CHAR|VARCHAR|CHARACTER)\s*\(\s*\d+\s*(,\s*\d+\s*)?\)", re.IGNORECASE
)
_FIELD = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)(?:\s*:\s*|\s+)(.+?)\s*", re.DOTALL)
_SUFFIX = re.compile(r"\s+(NOT\s+NULL|COMMENT\s+'[^']*'|COMMENT\s+\"[^\"]*\")\s*$", re.IGNORECASE)


def schema_complaint(text: str) -> str | None:
    """All errors of a schema in one text, or None."""
    return "; ".join(_complaints(text, "")) or None


def columns_in(text: str) -> dict[str, str]:
    """Columns of a valid schema, with their types."""
    found = (_FIELD.fullmatch(column) for column in _split(text))
    return {each.group(1).strip("`"): each.group(2) for each in found if each is not None}


def struct_fields(kind: str) -> dict[str, str] | None:
    """Fields of a struct type; None for any other type."""
    nested = re.fullmatch(r"STRUCT\s*<(.*)>", _bare(kind), re.IGNORECASE | re.DOTALL)
    return None if nested is None else columns_in(nested.group(1))


def field_names(kind: str) -> Iterator[str]:
    """Field names of all structs in a type, at any depth."""
    nested = re.fullmatch(r"(ARRAY|MAP|STRUCT)\s*<(.*)>", _bare(kind), re.IGNORECASE | re.DOTALL)
    if nested is None:
        return
    if nested.group(1).upper() != "STRUCT":
        for part in _split(nested.group(2)):
            yield from field_names(part)
        return
    for name, inner in columns_in(nested.group(2)).items():
        yield name
        yield from field_names(inner)


def _bare(kind: str) -> str:
    while (stripped := _SUFFIX.sub("", kind)) != kind:
        kind = stripped
    return kind.strip()


def _complaints(text: str, outer: str) -> Iterator[str]:
    for column in _split(text):
        found = _FIELD.fullmatch(column)
        if found is None:
            yield f"{column.strip() or 'an empty column'!r} is not `name TYPE`"
        else:
            yield from _type_complaints(found.group(2), f"{outer}{found.group(1)}")


def _type_complaints(text: str, column: str) -> Iterator[str]:
    text = _bare(text)
    upper = text.upper()
    if upper in SIMPLE or _SIZED.fullmatch(text):
        return
    nested = re.fullmatch(r"(ARRAY|MAP|STRUCT)\s*<(.*)>", text, re.IGNORECASE | re.DOTALL)
    if nested is None:
        close = difflib.get_close_matches(upper, SIMPLE | {"ARRAY", "MAP", "STRUCT"}, n=1)
        yield f"column {column}: {text!r} is not a type" + (f"; did you mean {close[0]}?" if close else "")
        return
    kind, inside = nested.group(1).upper(), nested.group(2)
    if kind == "STRUCT":
        yield from _complaints(inside, f"{column}.")
        return
    parts = _split(inside)
    if len(parts) != (2 if kind == "MAP" else 1):
        wanted = "two types" if kind == "MAP" else "one type"
        yield f"column {column}: {kind} takes {wanted}, not {inside.strip()!r}"
        return
    for part in parts:
        yield from _type_complaints(part, column)


def _split(text: str) -> list[str]:
    """Parts between the commas that stand outside brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "<(":
            depth += 1
        elif char in ">)":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]
