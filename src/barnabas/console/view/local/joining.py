"""Rows of the console, joined from the answers of several brokers.

A broker knows what it leads. A sum over partitions is known only if all of them are led by brokers that
answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.console.view.rows import (
    GroupOffsetRow,
    GroupRow,
    MemberRow,
    PartitionRow,
    TopicRow,
    Traffic,
)

Answer = dict[str, Any]


def topic_row(parts: Sequence[Answer]) -> TopicRow:
    """One topic, from the row of each broker."""
    first = parts[0]
    is_whole = sum(each["led"] for each in parts) == first["partitions"]
    return TopicRow(
        name=first["name"],
        topic_id=first["topic_id"],
        is_internal=first["is_internal"],
        partitions=first["partitions"],
        replication_factor=first["replication_factor"],
        under_replicated=first["under_replicated"],
        offline=first["offline"],
        records=sum(each["records"] for each in parts) if is_whole else None,
        size_bytes=sum(each["size_bytes"] for each in parts) if is_whole else None,
        traffic=traffic([each["rates"] for each in parts if each["led"]]),
        groups=sum(each["groups"] for each in parts),
        cleanup_policy=next((each["cleanup_policy"] for each in parts if each["cleanup_policy"]), None),
    )


def topic_rows(answers: Iterable[Answer]) -> dict[str, TopicRow]:
    """Topics by name, from the rows of several brokers."""
    parts: dict[str, list[Answer]] = {}
    for answer in answers:
        for row in answer["rows"]:
            parts.setdefault(row["name"], []).append(row)
    return {name: topic_row(found) for name, found in parts.items()}


def traffic(rates: Sequence[Sequence[float] | None]) -> Traffic:
    """Sum of the rates of several brokers; unknown until each of them has looked twice."""
    known = [each for each in rates if each is not None]
    if not known or len(known) < len(rates):
        return Traffic()
    records_in, bytes_in, bytes_out = (sum(column) for column in zip(*known, strict=True))
    return Traffic(records_in, bytes_in, bytes_out)


def partition_rows(answers: Sequence[Answer]) -> tuple[PartitionRow, ...]:
    """Partitions of one topic. The leader's answer has the offsets."""
    rows = []
    for parts in zip(*(answer["partitions"] for answer in answers), strict=False):
        known = next((part for part in parts if part["end_offset"] is not None), parts[0])
        lists = {name: tuple(known[name]) for name in ("replicas", "isr", "offline")}
        rows.append(PartitionRow(**{**known, **lists}))
    return tuple(rows)


def group_row(answer: Answer) -> GroupRow:
    return GroupRow(**answer)


def member_row(answer: Answer) -> MemberRow:
    return MemberRow(**{**answer, "partitions": pairs(answer["partitions"])})


def offset_row(answer: Answer) -> GroupOffsetRow:
    return GroupOffsetRow(**answer)


def pairs(rows: Iterable[Sequence[Any]]) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, second) for first, second in rows)
