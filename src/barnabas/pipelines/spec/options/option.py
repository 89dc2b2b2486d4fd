"""Options as rows: name, kind, default and description of an option.

Validation, the JSON Schema, `/connector-plugins` and the documentation read the same rows, so they cannot
disagree. This module needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""A value of YAML or JSON: text, number, boolean, null, list or mapping."""


class Kind(Enum):
    """Kinds of values, with the words of the error messages."""

    TEXT = "text"
    INTEGER = "a whole number"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    LIST = "a list of names"
    MAP = "a mapping of names to text"
    DURATION = "a duration such as '10 seconds'"
    CHOICE = "one of the listed words"
    SCHEMA = "a schema such as 'id BIGINT, name STRING'"
    PART = "a mapping with a 'type'"
    SECTION = "a section of its own"


class Missing(Enum):
    """Marker of an option without a default: a value is required."""

    REQUIRED = "required"


REQUIRED = Missing.REQUIRED

DURATION = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|seconds?|minutes?|hours?|days?)\s*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: Kind
    default: Value
    doc: str
    choices: tuple[str, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    aliases: tuple[str, ...] = ()
    """Names of the option in Connect configurations."""
    secret: bool = False
    is_address: bool = False
    """True if the value is a URL. A password in it must be a reference."""
    check: Callable[[Value], str | None] | None = None
    """Check of a value of the right kind; returns the error or None."""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def expected(self) -> str:
        """Expected value in the words of an error message."""
        if self.kind is Kind.CHOICE:
            return "one of " + ", ".join(self.choices)
        words = self.kind.value
        if self.at_least is not None and self.at_most is not None:
            return f"{words} from {self.at_least:g} to {self.at_most:g}"
        return f"{words}, at least {self.at_least:g}" if self.at_least is not None else words


@dataclass(frozen=True, slots=True)
class Plugin:
    """One type of source, sink, transform, predicate or format."""

    role: str
    name: str
    doc: str
    options: tuple[Option, ...]
    primary: str | None = None
    """Option that a shorthand sets: `- sql: SELECT …` is `- {type: sql, query: SELECT …}`."""
    connect_class: str = ""
    """Class name in a Connect configuration."""
    check: Callable[[Mapping[str, Value]], Sequence[str]] = field(default=lambda _: ())
    """Check of the options together; each complaint is a sentence."""

    def option(self, name: str) -> Option | None:
        return next((row for row in self.options if row.name == name), None)

    def with_defaults(self, given: Mapping[str, Value]) -> dict[str, Value]:
        absent = {row.name: row.default for row in self.options if not row.is_required}
        return {**absent, **given}


def duration_ms(text: str) -> int:
    """`10 seconds`, `500 ms`, `2 hours` in milliseconds."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not {Kind.DURATION.value}")
    unit = found.group(2).lower().rstrip("s") or "s"
    factor = {"m": 1, "millisecond": 1, "s": 1_000, "second": 1_000, "minute": 60_000, "hour": 3_600_000}
    return int(float(found.group(1)) * factor.get(unit, 86_400_000))
