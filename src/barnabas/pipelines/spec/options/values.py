"""Conversion of values to an option's kind: text of a flat configuration to numbers, lists and booleans."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.pipelines.spec.options.option import DURATION, Kind, Option, Value


def convert(row: Option, value: Value) -> tuple[Value, bool]:
    """Value in the option's kind, and whether it fits."""
    return _CONVERSIONS[row.kind](row, value)


def _plain_text(_: Option, value: Value) -> tuple[Value, bool]:
    fits = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return (str(value) if fits else value), fits


def _boolean(_: Option, value: Value) -> tuple[Value, bool]:
    word = {"true": True, "false": False}.get(str(value).lower())
    return (value if word is None else word), word is not None


def _list(_: Option, value: Value) -> tuple[Value, bool]:
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        return value, False
    fits = all(isinstance(item, (str, int)) and item != "" for item in items)
    return ([str(item) for item in items] if fits else value), fits


def _map(_: Option, value: Value) -> tuple[Value, bool]:
    if not isinstance(value, Mapping) or any(isinstance(each, (list, Mapping)) for each in value.values()):
        return value, False
    return {key: _text(each) for key, each in value.items()}, True


def _number(row: Option, value: Value) -> tuple[Value, bool]:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value, False
    try:
        number: float = int(value) if row.kind is Kind.INTEGER else float(value)
    except ValueError:
        return value, False
    low = row.at_least is None or number >= row.at_least
    high = row.at_most is None or number <= row.at_most
    whole = row.kind is Kind.NUMBER or float(value) == number
    return number, low and high and whole


def _duration(_: Option, value: Value) -> tuple[Value, bool]:
    return value, isinstance(value, str) and DURATION.fullmatch(value) is not None


def _choice(row: Option, value: Value) -> tuple[Value, bool]:
    return value, value in row.choices


_CONVERSIONS: Mapping[Kind, Callable[[Option, Value], tuple[Value, bool]]] = {
    Kind.TEXT: _plain_text,
    Kind.SCHEMA: _plain_text,
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _number,
    Kind.NUMBER: _number,
    Kind.LIST: _list,
    Kind.MAP: _map,
    Kind.DURATION: _duration,
    Kind.CHOICE: _choice,
}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
