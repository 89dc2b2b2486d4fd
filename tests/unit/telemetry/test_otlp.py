"""Data points of a push, and bytes that are none."""

from __future__ import annotations

import math
import random

import pytest

from barnabas.core.errors import InvalidRecord
from barnabas.telemetry.otlp import ATTRIBUTES_MAX, Point, data_points
from tests.unit.telemetry.pushes import (
    attribute,
    double,
    fixed64,
    gauge,
    increase,
    integer,
    message,
    metrics_data,
    text,
    varint,
)


def read(data: bytes) -> list[Point]:
    return [point for point in data_points(memoryview(data)) if point is not None]


def test_gauges_and_increases_are_read() -> None:
    assert read(metrics_data(gauge("rate", 1.5, topic="t", node="1"), increase("sent", 3))) == [
        Point("rate", (("node", "1"), ("topic", "t")), 1.5, False),
        Point("sent", (), 3, True),
    ]


def test_of_a_histogram_and_a_summary_count_and_sum_are_read() -> None:
    histogram = text(1, "h") + message(9, message(1, fixed64(4, 7) + double(5, 2.5)) + integer(2, 2))
    summary = text(1, "s") + message(11, message(1, fixed64(4, 1) + double(5, 0.5)))
    assert [(p.name, p.value, p.is_delta) for p in read(metrics_data(histogram, summary))] == [
        ("h.count", 7, False), ("h.sum", 2.5, False), ("s.count", 1, False), ("s.sum", 0.5, False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (text(1, "r"), "r"),
        (integer(2, 1), "true"),
        (integer(3, (1 << 64) - 5), "-5"),
        (double(4, 0.5), "0.5"),
        (message(5, b""), ""),
    ],
)
def test_attributes_of_each_kind_are_text(value: bytes, shown: str) -> None:
    point = message(1, attribute(7, "k", value) + double(4, 1.0))
    (found,) = read(metrics_data(text(1, "m") + message(5, point)))
    assert found.labels == (("k", shown),)


def test_a_point_without_a_number_is_left_out() -> None:
    assert read(metrics_data(gauge("rate", math.nan), gauge("more", math.inf))) == []


def test_the_body_that_comes_last_counts() -> None:
    twice = text(1, "m") + message(5, message(1, double(4, 1.0))) + message(5, message(1, double(4, 2.0)))
    assert [point.value for point in read(metrics_data(twice))] == [2.0]


def test_names_and_attributes_are_bounded() -> None:
    labels = {f"k{number:02}": "v" * 10_000 for number in range(100)}
    (found,) = read(metrics_data(gauge("n" * 10_000, 1.0, **labels)))
    assert len(found.name) == 256
    assert len(found.labels) == ATTRIBUTES_MAX
    assert {len(value) for _, value in found.labels} == {256}


@pytest.mark.parametrize(
    "data",
    [
        varint(1 << 3 | 2) + varint(100) + b"short",
        varint(1 << 3 | 2) + b"\xff" * 11,
        varint(1 << 3 | 2),
        varint(1 << 3 | 3),  # a group
        varint(1 << 3 | 1) + b"1234567",
        integer(1, 5),
        message(1, message(2, message(2, message(1, b"\xff")))),
        metrics_data(text(1, "m") + message(5, message(1, integer(4, 1)))),
    ],
    ids=["cut", "endless number", "nothing", "group", "short", "number", "no text", "wrong number"],
)
def test_bytes_that_are_no_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        read(data)


def test_no_damage_raises_anything_else() -> None:
    chance = random.Random(7)
    whole = metrics_data(gauge("rate", 1.5, topic="t"), increase("sent", 3))
    for _ in range(3_000):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            read(bytes(damaged[: chance.randrange(len(damaged)) or None]))
        except InvalidRecord:
            continue


JUNK = integer(99, 0) * 10_000


@pytest.mark.parametrize(
    "data",
    [
        JUNK,
        message(1, b"") * 10_000,
        message(1, JUNK),
        message(1, message(2, JUNK)),
        metrics_data(text(1, "m") + JUNK),
        metrics_data(text(1, "m") + message(5, JUNK)),
        metrics_data(text(1, "m") + message(5, message(1, JUNK))),
        metrics_data(text(1, "m") + message(5, message(1, message(7, JUNK)))),
        metrics_data(text(1, "m") + message(5, message(1, attribute(7, "k", JUNK)))),
    ],
    ids=["top", "empty", "resource", "scope", "metric", "body", "point", "attribute", "value"],
)
def test_the_reader_pauses_at_each_field(data: bytes) -> None:
    """The broker serves other clients between two steps, however the fields are nested."""
    assert sum(1 for _ in data_points(memoryview(data))) >= 10_000
