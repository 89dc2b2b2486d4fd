"""Parsers of argument texts: pairs, timestamps, durations, partitions, broker ids, addresses.

Each raises a usage error that names the option. `start` imports this module, so it imports no client.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import NamedTuple

import click

from barnabas.core.addressing.endpoints import PORT_MAX, Endpoint
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.ids import TopicPartition

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION_MS_MAX = (1 << 63) - 1
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class TopicSelection(NamedTuple):
    """Topic with some of its partitions. None means all of them."""

    topic: str
    partitions: tuple[int, ...] | None


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`KEY=VALUE` pairs. The last of several values of a key wins."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint=option)
        found[name.strip()] = value
    return found


def parse_timestamp(text: str, option: str) -> int:
    """Milliseconds since 1970, from a number or an ISO 8601 date. A date without a zone is local time.

    A date before 1970 becomes 0: negative timestamps have special meanings in ListOffsets.
    """
    if text.isdecimal():
        if int(text) > _DURATION_MS_MAX:
            raise click.BadParameter(f"{text} ms is later than any record can be", param_hint=option)
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is neither milliseconds nor a date like 2026-01-31T12:00:00Z", param_hint=option
        ) from None
    return max((moment - _EPOCH) // dt.timedelta(milliseconds=1), 0)


def parse_moment(text: str, option: str, clock: Clock | None = None) -> int:
    """Milliseconds since 1970, from a time before now (`10m`, `2h30m`) or from a timestamp."""
    parts = re.findall(r"([0-9]+)(ms|s|m|h|d)", text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        ago_ms = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
        return max((clock or SystemClock()).now_ms() - ago_ms, 0)
    return parse_timestamp(text, option)


def parse_duration(text: str, option: str) -> int:
    """Milliseconds, from a number with a unit."""
    found = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)", text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a time like 45s, 30m, 12h or 7d", param_hint=option)
    return min(int(found[1]) * _UNITS_MS[found[2]], _DURATION_MS_MAX)


def parse_topic_selection(text: str, option: str) -> TopicSelection:
    """`TOPIC[:PARTITION,…]`."""
    topic, _, numbers = text.partition(":")
    if not numbers:
        return TopicSelection(topic, None)
    try:
        return TopicSelection(topic, tuple(int(number) for number in numbers.split(",")))
    except ValueError:
        raise click.BadParameter(
            f"{text}: partitions are numbers separated by commas", param_hint=option
        ) from None


def parse_partition_offset(text: str, option: str) -> tuple[TopicPartition, int]:
    """`TOPIC:PARTITION=OFFSET`."""
    topic_partition, equals, offset = text.partition("=")
    topic, colon, partition = topic_partition.rpartition(":")
    if not (equals and colon and partition.isdecimal() and offset.isdecimal()):
        raise click.BadParameter(f"{text!r} is not of the form TOPIC:PARTITION=OFFSET", param_hint=option)
    return TopicPartition(topic, int(partition)), int(offset)


def parse_broker_ids(text: str, option: str) -> set[int]:
    """`ID,ID,…`."""
    try:
        return {int(part) for part in text.split(",")}
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of broker ids", param_hint=option) from None


def parse_address(text: str, option: str) -> Endpoint:
    """`HOST:PORT`, with an IPv6 host in brackets. An empty host means every interface."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise click.BadParameter(f"{text!r} is not of the form HOST:PORT", param_hint=option)
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))
