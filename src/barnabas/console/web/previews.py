"""Bytes of a record in a cell of a table."""

from __future__ import annotations

from barnabas.console.html.components import badge
from barnabas.console.html.elements import Content, span
from barnabas.console.html.figures import size
from barnabas.console.records.decoding import ShownBytes


def preview(shown: ShownBytes) -> Content:
    if shown.format == "null":
        return badge("null")
    kind = badge(shown.format) if shown.format in ("hex", "avro") else None
    cut = span(f" … {size(shown.size_bytes)}", class_="soft") if shown.is_cut else None
    return (kind, " " if kind else None, span(shown.text, class_="preview"), cut)
