"""Search, order and page of rows that are all at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from barnabas.console.view.rows import GroupRow, GroupSort, Page, TopicRow, TopicSort

Row = TypeVar("Row")

LIMIT_MAX = 1_000
"""Rows of one page."""

_TOPIC_KEYS: dict[TopicSort, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "records": lambda row: row.records,
    "size": lambda row: row.size_bytes,
    "in": lambda row: row.traffic.bytes_in if row.traffic.bytes_in is not None else row.traffic.records_in,
    "out": lambda row: row.traffic.bytes_out,
}
_GROUP_KEYS: dict[GroupSort, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.group_id,
    "state": lambda row: row.state,
    "members": lambda row: row.members,
    "topics": lambda row: row.topics,
    "lag": lambda row: row.lag_records,
    "time": lambda row: row.lag_ms,
}


def matches(name: str, search: str) -> bool:
    """Whether all words of the search are in the name, in any case."""
    shown = name.casefold()
    return all(word in shown for word in search.casefold().split())


def topics_in_order(rows: Iterable[TopicRow], sort: TopicSort, *, descending: bool) -> list[TopicRow]:
    return _in_order(rows, _TOPIC_KEYS[sort], lambda row: row.name, descending=descending)


def groups_in_order(rows: Iterable[GroupRow], sort: GroupSort, *, descending: bool) -> list[GroupRow]:
    return _in_order(rows, _GROUP_KEYS[sort], lambda row: row.group_id, descending=descending)


def page_of(rows: list[Row], offset: int, limit: int) -> Page[Row]:
    start = max(offset, 0)
    return Page(tuple(rows[start : start + min(max(limit, 1), LIMIT_MAX)]), len(rows))


def _in_order(
    rows: Iterable[Row], key: Callable[[Row], Any], name: Callable[[Row], str], *, descending: bool
) -> list[Row]:
    """Equal rows are in the order of their names, and those without a value come last either way."""
    found = sorted(rows, key=name)
    known = [row for row in found if key(row) is not None]
    known.sort(key=key, reverse=descending)
    return known + [row for row in found if key(row) is None]
