"""Configuration keys as rows.

One row holds everything about one key: its name (Kafka's own), type, default, valid values, when it may
change, and a sentence for people. Parsing, the error messages, DescribeConfigs and `docs/CONFIG.md` all use
the same rows, so they cannot disagree.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Protocol

from barnabas.core.errors import InvalidConfig

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]+\.(?P<rest>.+)")


class ConfigType(IntEnum):
    """The type of a value; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """Time and scope in which a change of a broker key takes effect."""

    READ_ONLY = "read-only"
    PER_LISTENER = "per-listener"
    """At once, for one listener of one broker: under `listener.name.<listener>.` only."""
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Check(Protocol):
    """Check of a value: raises ValueError with the reason, and describes the valid values."""

    def __call__(self, value: Any) -> None: ...
    def describe(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Between:
    least: float | None = None
    most: float | None = None

    def __call__(self, value: Any) -> None:
        if self.least is not None and value < self.least:
            raise ValueError(f"must be at least {_plain(self.least)}")
        if self.most is not None and value > self.most:
            raise ValueError(f"must be at most {_plain(self.most)}")

    def describe(self) -> str:
        low = "…" if self.least is None else _plain(self.least)
        high = "…" if self.most is None else _plain(self.most)
        return f"[{low}, {high}]"


def at_least(least: float) -> Between:
    return Between(least=least)


def between(least: float, most: float) -> Between:
    return Between(least, most)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these words; for a LIST, every element is one of them."""

    allowed: tuple[str, ...]

    def __call__(self, value: Any) -> None:
        for word in value if isinstance(value, list | tuple) else [value]:
            if word not in self.allowed:
                raise ValueError(f"must be one of {', '.join(self.allowed)}")

    def describe(self) -> str:
        return ", ".join(self.allowed)


def one_of(*allowed: str) -> OneOf:
    return OneOf(allowed)


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. `default=None` means that it has no value unless given."""

    name: str
    type: ConfigType
    default: Any
    check: Check | None = None
    update: Update = Update.READ_ONLY
    doc: str = ""
    synonym: str | None = None
    """For a topic's or a group's key: the broker's key that supplies the default."""
    coarser: tuple[tuple[str, int], ...] = ()
    """Broker keys that supply it when the synonym has no value, and their unit."""
    is_shown_unset: bool = True
    """Whether DescribeConfigs shows the key while it is unset, as in Apache Kafka."""

    def parse(self, text: str) -> Any:
        """Parse and check `text`; INVALID_CONFIG names the fault."""
        try:
            value = _PARSERS[self.type](text.strip())
            if self.check is not None:
                self.check(value)
        except ValueError as error:
            raise InvalidConfig(f"invalid value {text!r} for {self.name}: {error}") from None
        return value

    def supplying(self, name: str, doc: str, *coarser: tuple[str, int]) -> Key:
        """A key of a topic or a group whose default is this broker's key."""
        return Key(name, self.type, self.default, self.check, doc=doc, synonym=self.name, coarser=coarser)

    def render(self, value: Any) -> str | None:
        """The text that `parse` would take for `value`."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list | tuple):
            return ",".join(value)
        return str(value)


class Definition(Mapping[str, Key]):
    """A set of rows, by name."""

    def __init__(self, rows: Iterable[Key]) -> None:
        self._rows: dict[str, Key] = {}
        for row in rows:
            assert row.name not in self._rows, f"{row.name} is declared twice"
            self._rows[row.name] = row

    def __getitem__(self, name: str) -> Key:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def key(self, name: str) -> Key:
        """The row of `name`; INVALID_CONFIG suggests a similar key."""
        row = self._rows.get(name)
        if row is None:
            near = difflib.get_close_matches(name, self._rows, n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise InvalidConfig(f"unknown configuration key {name!r}{hint}")
        return row

    def parse(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Values of the given keys, without defaults."""
        return {name: self.key(name).parse(text) for name, text in texts.items()}

    def defaults(self) -> dict[str, Any]:
        return {name: row.default for name, row in self._rows.items()}


class BrokerDefinition(Definition):
    """Rows that may also hold for one listener, or for one of its mechanisms: the row of `<key>` is that of
    `listener.name.<listener>.<key>` and of `listener.name.<listener>.<mechanism>.<key>` too."""

    def key(self, name: str) -> Key:
        prefixed = _LISTENER_PREFIX.fullmatch(name)
        if prefixed is None:
            return super().key(name)
        rest = prefixed["rest"]
        return self.get(rest) or super().key(rest.partition(".")[2] or rest)


def _boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("must be true or false")


def _whole(bits: int) -> Any:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise ValueError(f"does not fit into {bits} bits")
        return value

    return parse


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def _list(text: str) -> Sequence[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_PARSERS: dict[ConfigType, Any] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _whole(32),
    ConfigType.SHORT: _whole(16),
    ConfigType.LONG: _whole(64),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
