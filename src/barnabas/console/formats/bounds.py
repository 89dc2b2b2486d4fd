"""Bounds on what bytes of others may become: values, nesting, and the time that follows from both.

A schema and a value come from clients. Ten bytes of Avro may say that a million nulls follow. A value of a
recursive schema may nest deeper than any stack, and a chain of types may double at each link. So each value
that is made spends from a budget, and each level is counted.
"""

from __future__ import annotations

from typing import Final

VALUES_MAX: Final = 200_000
"""Values within one decoded key or value."""
DEPTH_MAX: Final = 64
VALUE_BYTES_MAX: Final = 4 * 1024 * 1024
SCHEMA_CHARACTERS_MAX: Final = 1 << 20
SCHEMA_DEPTH_MAX: Final = 64
NAME_CHARACTERS_MAX: Final = 512
"""Of a type with its namespace or its package. Each type of a schema has them in its own name."""
NAME_PARTS_MAX: Final = 2 * SCHEMA_DEPTH_MAX
"""Between the dots of such a name. A name is looked for in each scope around the place that uses it."""


class Undecodable(Exception):
    """The bytes do not have the form that was asked for; the message says why."""


class UnusableSchema(Exception):
    """The schema cannot be read, or is beyond a bound; the message says why."""


class Budget:
    """Remaining depth and number of values for the decoding of one key or value."""

    __slots__ = ("depth", "values_left")

    def __init__(self, values: int = VALUES_MAX) -> None:
        self.values_left = values
        self.depth = 0

    def spend(self) -> None:
        self.values_left -= 1
        if self.values_left < 0:
            raise Undecodable(f"the value has more than {VALUES_MAX:,} parts")

    def enter(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise Undecodable(f"the value is nested more than {DEPTH_MAX} levels deep")

    def leave(self) -> None:
        self.depth -= 1


def bounded_name(full: str) -> str:
    """The full name of a type. A namespace of half a megabyte would be in the name of each of its types."""
    if len(full) > NAME_CHARACTERS_MAX or full.count(".") >= NAME_PARTS_MAX:
        raise UnusableSchema(
            f"the name {full[:100]} … has more than {NAME_CHARACTERS_MAX} characters or "
            f"{NAME_PARTS_MAX} parts"
        )
    return full


def plain_float(number: float) -> float | str:
    """A number for JSON, which lacks infinity and NaN."""
    return number if number - number == 0 else str(number)
