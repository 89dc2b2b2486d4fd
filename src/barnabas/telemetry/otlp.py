"""Data points of OpenTelemetry's MetricsData v1, which clients push.

Clients of Kafka send gauges and sums. Of histograms and summaries, the count and the sum are read. The bounds
on a push are its bytes (`telemetry.max.bytes`) and, of what is kept, the number of series. The reader is a
generator that yields each point and pauses at each field, and the handler runs it in slices. A push may
consist of half a million fields that mean nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX
from barnabas.core.steps import Sliced
from barnabas.telemetry.protobuf import (
    VARINT,
    Value,
    as_bytes,
    as_double,
    as_signed64,
    as_text,
    fields,
)

ATTRIBUTES_MAX: Final = 16
"""Attributes of one data point that are read."""
DELTA: Final = 1
"""Aggregation temporality of a point that is an increase since the one before."""

RESOURCE_METRICS = 1
SCOPE_METRICS = 2
METRICS = 2
NAME = 1
GAUGE, SUM, HISTOGRAM, EXPONENTIAL_HISTOGRAM, SUMMARY = 5, 7, 9, 10, 11
POINTS = 1
TEMPORALITY = 2
AS_DOUBLE, AS_INT = 4, 6
ATTRIBUTES = {GAUGE: 7, SUM: 7, HISTOGRAM: 9, EXPONENTIAL_HISTOGRAM: 1, SUMMARY: 7}
COUNT_AT, SUM_AT = 4, 5

Labels = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One value of one series."""

    name: str
    labels: Labels
    value: float
    is_delta: bool


def data_points(data: memoryview) -> Iterator[Point | None]:
    """All points, and None for each other field, so that the caller can pause. Raises InvalidRecord."""
    scopes = _within(_messages(data, RESOURCE_METRICS), SCOPE_METRICS)
    for metric in _within(scopes, METRICS):
        yield None
        if metric is not None:
            yield from _points_of(metric)


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview | None]:
    """Messages in the fields of this number, and None for each other field."""
    for number, kind, value in fields(message):
        yield as_bytes(kind, value) if number == wanted else None


def _within(messages: Iterator[memoryview | None], wanted: int) -> Iterator[memoryview | None]:
    """Messages of this number in all the messages. An empty message takes a step too."""
    for message in messages:
        yield None
        if message is not None:
            yield from _messages(message, wanted)


def _points_of(metric: memoryview) -> Iterator[Point | None]:
    name = ""
    bodies: list[tuple[int, memoryview]] = []
    for number, kind, value in fields(metric):
        yield None
        if number == NAME:
            name = as_text(kind, value)[:NAME_CHARS_REMEMBERED_MAX]
        elif number in ATTRIBUTES:
            bodies = [(number, as_bytes(kind, value))]  # they are a `oneof`: the last one counts
    for number, body in bodies:
        temporality: Value = 0
        for field, kind, value in fields(body):
            if field == TEMPORALITY and kind == VARINT:
                temporality = value
            yield None
        for point in _messages(body, POINTS):
            yield None
            if point is not None:
                yield from _values(name, number, point, is_delta=temporality == DELTA)


def _values(name: str, number: int, point: memoryview, *, is_delta: bool) -> Iterator[Point | None]:
    values: dict[str, float] = {}
    attributes: list[tuple[str, str]] = []
    is_number = number in (GAUGE, SUM)
    for field, kind, value in fields(point):
        yield None
        if field == ATTRIBUTES[number]:
            if len(attributes) < ATTRIBUTES_MAX:
                attributes.append((yield from _attribute(as_bytes(kind, value))))
        elif is_number and field == AS_DOUBLE:
            values[name] = as_double(kind, value)
        elif is_number and field == AS_INT:
            values[name] = as_signed64(kind, value)
        elif not is_number and field == COUNT_AT:
            values[f"{name}.count"] = as_signed64(kind, value)
        elif not is_number and field == SUM_AT:
            values[f"{name}.sum"] = as_double(kind, value)
    labels = tuple(sorted(attributes))
    for series, number_read in values.items():
        if math.isfinite(number_read):  # a client without a measurement says NaN
            yield Point(series, labels, number_read, is_delta)


def _attribute(pair: memoryview) -> Sliced[tuple[str, str]]:
    key, text = "", ""
    for number, kind, value in fields(pair):
        yield
        if number == 1:
            key = as_text(kind, value)
        elif number == 2:
            text = yield from _any_value(as_bytes(kind, value))
    return key[:NAME_CHARS_REMEMBERED_MAX], text[:NAME_CHARS_REMEMBERED_MAX]


def _any_value(value: memoryview) -> Sliced[str]:
    """Text of a string, boolean, int or double; other kinds are not shown."""
    for number, kind, found in fields(value):
        yield
        match number:
            case 1:
                return as_text(kind, found)
            case 2 if kind == VARINT:
                return "true" if found else "false"
            case 3 if isinstance(found, int):
                return str(found - (1 << 64) if found >> 63 else found)
            case 4:
                return str(as_double(kind, found))
    return ""
