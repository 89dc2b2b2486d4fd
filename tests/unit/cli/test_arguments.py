"""Parsers of arguments: values that a command accepts, and usage errors that name the option."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Iterator

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.manual_time import ManualClock

from barnabas.cli.support.arguments import (
    parse_address,
    parse_broker_ids,
    parse_duration,
    parse_moment,
    parse_pairs,
    parse_partition_offset,
    parse_timestamp,
    parse_topic_selection,
)
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition

NOON_MS = 1_769_860_800_000
"""2026-01-31T12:00:00Z"""


@pytest.fixture
def five_hours_west(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    assert os.environ.get("TZ") != "EST5"


def test_a_pair_keeps_its_value_as_it_is() -> None:
    assert parse_pairs(["a=1", " b = x = y ", "c="], "--set") == {"a": "1", "b": " x = y ", "c": ""}


def test_the_last_value_of_a_key_wins() -> None:
    assert parse_pairs(["a=1", "a=2"], "--set") == {"a": "2"}


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("0", 0),
        (str(NOON_MS), NOON_MS),
        ("2026-01-31T12:00:00Z", NOON_MS),
        ("2026-01-31T13:00:00+01:00", NOON_MS),
        ("2026-01-31T12:00:00.007Z", NOON_MS + 7),
        ("2026-01-31 12:00:00.999999+00:00", NOON_MS + 999),
    ],
)
def test_a_timestamp_is_milliseconds_or_a_date(text: str, timestamp: int) -> None:
    assert parse_timestamp(text, "--timestamp") == timestamp


@pytest.mark.usefixtures("five_hours_west")
def test_a_date_without_a_zone_is_local_time() -> None:
    assert parse_timestamp("2026-01-31T07:00:00", "--timestamp") == NOON_MS
    assert parse_timestamp("2026-01-31", "--timestamp") == NOON_MS - 7 * 3_600_000


@given(st.integers(0, 4_102_444_800_000))
@example(1_000_000_000_001)
def test_a_date_keeps_its_milliseconds(timestamp: int) -> None:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=timestamp)
    assert parse_timestamp(moment.isoformat(), "--timestamp") == timestamp


@pytest.mark.parametrize(
    "text", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "0001-01-01T00:00:00Z"]
)
def test_a_date_before_1970_is_no_special_timestamp(text: str) -> None:
    """ListOffsets reads -1 as the latest offset and -2 as the earliest one."""
    assert parse_timestamp(text, "--timestamp") == 0


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("1ms", 1),
        ("45s", 45_000),
        ("30m", 1_800_000),
        ("12h", 43_200_000),
        ("7d", 604_800_000),
        ("0s", 0),
        ("9" * 30 + "d", (1 << 63) - 1),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, duration_ms: int) -> None:
    assert parse_duration(text, "--lifetime") == duration_ms


def test_a_topic_selection_names_some_partitions_or_all() -> None:
    assert parse_topic_selection("orders", "--topic") == ("orders", None)
    assert parse_topic_selection("orders:", "--topic") == ("orders", None)
    assert parse_topic_selection("orders:3", "--topic") == ("orders", (3,))
    assert parse_topic_selection("orders:3,0", "--topic") == ("orders", (3, 0))


def test_a_partition_offset_has_three_parts() -> None:
    assert parse_partition_offset("orders:3=1042", "--set") == (TopicPartition("orders", 3), 1042)


def test_broker_ids_are_a_set() -> None:
    assert parse_broker_ids("1,2,2", "--brokers") == {1, 2}


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:9404", Endpoint("127.0.0.1", 9404)),
        ("[::1]:9404", Endpoint("::1", 9404)),
        (":0", Endpoint("", 0)),
        ("localhost:65535", Endpoint("localhost", 65_535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, endpoint: Endpoint) -> None:
    assert parse_address(text, "--metrics") == endpoint


def pairs(text: str, option: str) -> object:
    return parse_pairs([text], option)


@pytest.mark.parametrize(
    ("parse", "texts", "reason"),
    [
        (pairs, ["a", "=1", " =1", ""], "is not of the form KEY=VALUE"),
        (parse_timestamp, ["yesterday", "-1", "1.5", "", "2026-13-01"], "is neither milliseconds nor a date"),
        (parse_duration, ["5", "5w", "-5s", "1.5h", "5 s", "s", ""], "is not a time like"),
        (parse_topic_selection, ["orders:x", "orders:1,", "orders:1-3"], "numbers separated by commas"),
        (
            parse_partition_offset,
            ["orders:3", "orders=5", "orders:x=5", "orders:3=-1", "orders:3="],
            "is not of the form TOPIC:PARTITION=OFFSET",
        ),
        (parse_broker_ids, ["", "1,", "a", "1;2"], "is not a list of broker ids"),
        (parse_address, ["9404", "host:", "host:x", "host:65536", "host:-1"], "is not of the form HOST:PORT"),
    ],
)
def test_an_unreadable_argument_is_an_error_of_its_option(
    parse: Callable[[str, str], object], texts: list[str], reason: str
) -> None:
    for text in texts:
        with pytest.raises(click.BadParameter, match=reason) as raised:
            parse(text, "--option")
        assert raised.value.param_hint == "--option"
        assert text in raised.value.message


def test_a_time_is_a_while_ago_or_a_moment() -> None:
    now = ManualClock()
    now_ms = now.now_ms()
    assert parse_moment("1ms", "--since", now) == max(now_ms - 1, 0)
    assert parse_moment("2h30m", "--since", now) == max(now_ms - 9_000_000, 0)
    assert parse_moment("1700000000000", "--since", now) == 1_700_000_000_000
    for text in ("10 apples", "10m!", "-5m", "99999999999999999999"):
        with pytest.raises(click.BadParameter):
            parse_moment(text, "--since", now)
