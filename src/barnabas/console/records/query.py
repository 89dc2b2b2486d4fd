"""Query of a page of messages, read from its address: the address is the link to share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal, cast, get_args

from barnabas.console.records.browsing import Direction
from barnabas.console.records.decoding import FORMATS, Format
from barnabas.console.records.expression import (
    Candidate,
    InvalidExpression,
    Predicate,
    compile_expression,
    containing,
)

Start = Literal["newest", "oldest", "offset", "time"]

LIMIT: Final = 50
LIMIT_MAX: Final = 500
CURSORS_MAX: Final = 10_000
CONTAINS_CHARACTERS_MAX: Final = 500
_DIGITS: Final = re.compile(r"[0-9]+")
"""`str.isdigit` takes a superscript for a digit, which `int` does not."""


class InvalidQuery(Exception):
    """The message says which part of the query, and what to write instead."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    start: Start = "newest"
    partition: int | None = None
    """None means all."""
    offset: int = 0
    time_ms: int | None = None
    contains: str = ""
    filter: str = ""
    key_format: Format = "auto"
    value_format: Format = "auto"
    limit: int = LIMIT
    committed_only: bool = False
    cursors: Mapping[int, int] | None = None
    """Where a later page begins, by partition."""
    shown_time: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> MessageQuery:
        start = given.get("start") or "newest"
        if start not in get_args(Start):
            raise InvalidQuery(f"start is one of {', '.join(get_args(Start))}")
        time = given.get("time", "").strip()
        if start == "time" and not time:
            raise InvalidQuery("write the time to start at, like 2026-11-18T09:00")
        partition = given.get("partition", "").strip()
        return cls(
            start=cast("Start", start),
            partition=_number(partition, "partition") if partition else None,
            offset=_number(given.get("offset", "") or "0", "offset"),
            time_ms=time_ms(time) if time else None,
            contains=given.get("contains", "")[:CONTAINS_CHARACTERS_MAX],
            filter=given.get("filter", ""),
            key_format=_format(given.get("key", "")),
            value_format=_format(given.get("value", "")),
            limit=min(max(_number(given.get("limit", "") or str(LIMIT), "limit"), 1), LIMIT_MAX),
            committed_only=given.get("committed") == "true",
            cursors=_cursors(given["at"]) if given.get("at") else None,
            shown_time=time,
        )

    @property
    def direction(self) -> Direction:
        return "older" if self.start == "newest" else "newer"

    def predicate(self) -> Predicate | None:
        """The filter; None shows all. InvalidQuery for an expression that cannot be read."""
        try:
            parts = [compile_expression(self.filter)] if self.filter.strip() else []
        except InvalidExpression as error:
            raise InvalidQuery(str(error)) from None
        if self.contains:
            parts.append(containing(self.contains))
        if not parts:
            return None

        def check(record: Candidate) -> bool:
            return all(part(record) for part in parts)

        return Predicate(check, sum(part.steps for part in parts))

    def parameters(self) -> dict[str, str]:
        """The query of this page's address, without what is as usual."""
        found = {
            "start": "" if self.start == "newest" else self.start,
            "partition": "" if self.partition is None else str(self.partition),
            "offset": str(self.offset) if self.start == "offset" else "",
            "time": self.shown_time if self.start == "time" else "",
            "contains": self.contains,
            "filter": self.filter,
            "key": "" if self.key_format == "auto" else self.key_format,
            "value": "" if self.value_format == "auto" else self.value_format,
            "limit": "" if self.limit == LIMIT else str(self.limit),
            "committed": "true" if self.committed_only else "",
            "at": ""
            if self.cursors is None
            else ".".join(f"{partition}-{at}" for partition, at in sorted(self.cursors.items())),
        }
        return {name: value for name, value in found.items() if value}

    def going_on(self, cursors: Mapping[int, int]) -> MessageQuery:
        return replace(self, cursors=cursors)


def time_ms(text: str) -> int:
    """Milliseconds since 1970, of themselves or of a date and time in UTC."""
    if _DIGITS.fullmatch(text) and len(text) < 16:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
        return max(round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1_000), 0)
    except (ValueError, OverflowError):
        raise InvalidQuery(f"{text[:40]!r} is not a time; write it like 2026-11-18T09:00, in UTC") from None


def _number(text: str, name: str) -> int:
    if not _DIGITS.fullmatch(text) or len(text) > 19 or int(text) >= 2**63:
        raise InvalidQuery(f"{name} is a whole number from 0 on, not {text[:40]!r}")
    return int(text)


def _format(text: str) -> Format:
    if text and text not in FORMATS:
        raise InvalidQuery(f"a format is one of {', '.join(FORMATS)}")
    return text or "auto"


def _cursors(text: str) -> dict[int, int]:
    parts = text.split(".")
    if len(parts) > CURSORS_MAX:
        raise InvalidQuery("the link has too many partitions")
    found = {}
    for part in parts:
        partition, dash, at = part.partition("-")
        if not dash:
            raise InvalidQuery("the link to these records is damaged")
        found[_number(partition, "partition")] = _number(at, "offset")
    return found
