"""Messages and enums of Protobuf, as `.proto` files or descriptor sets declare them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.console.formats.bounds import UnusableSchema, bounded_name

SCALARS: Final = frozenset(
    {
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    }
)


@dataclass(slots=True)
class Field:
    name: str
    number: int
    type: str
    """A scalar type, or the name of a message or an enum as it is written."""
    is_repeated: bool = False
    has_presence: bool = True
    """Whether a missing scalar differs from one with the default value."""
    target: Message | Enum | None = None
    """Type of that name, once it is resolved. A type that nothing declares stays None."""

    def __post_init__(self) -> None:
        bounded_name(self.type)

    @property
    def has_default(self) -> bool:
        """Whether the field has a value also where a message lacks it."""
        is_plain = self.type in SCALARS or isinstance(self.target, Enum)
        return is_plain and not self.has_presence and not self.is_repeated


@dataclass(slots=True)
class Message:
    full_name: str
    fields: dict[int, Field] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    """Those declared inside, in their order: framed records name a message by its place."""
    enums: list[Enum] = field(default_factory=list)
    is_map_entry: bool = False

    def __post_init__(self) -> None:
        bounded_name(self.full_name)


@dataclass(slots=True)
class Enum:
    full_name: str
    names: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bounded_name(self.full_name)


@dataclass(slots=True)
class File:
    package: str = ""
    messages: list[Message] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)


class Types:
    """Types of several files, resolved."""

    def __init__(self, files: Iterable[File]) -> None:
        self._messages: dict[str, Message] = {}
        self._enums: dict[str, Enum] = {}
        for each in files:
            self._enums |= {enum.full_name: enum for enum in each.enums}
            for message in each.messages:
                self._add(message)
        for message in self._messages.values():
            for found in message.fields.values():
                if found.type not in SCALARS and found.target is None:
                    found.target = self._resolve(found.type, message.full_name)

    def message(self, name: str) -> Message:
        """UNUSABLE_SCHEMA if there is none of that name. A name without its package is enough if one fits."""
        found = self._messages.get(name.removeprefix("."))
        if found is not None:
            return found
        fitting = [each for known, each in self._messages.items() if known.endswith(f".{name}")]
        if len(fitting) == 1:
            return fitting[0]
        raise UnusableSchema(f"the schema has no message {name[:100]!r}")

    @property
    def names(self) -> list[str]:
        return [name for name, each in self._messages.items() if not each.is_map_entry]

    def _add(self, message: Message) -> None:
        self._messages[message.full_name] = message
        self._enums |= {enum.full_name: enum for enum in message.enums}
        for each in message.messages:
            self._add(each)

    def _resolve(self, name: str, scope: str) -> Message | Enum | None:
        """The type that a name means within a message: the innermost one that is declared."""
        if name.startswith("."):
            return self._find(name[1:])
        while True:
            found = self._find(f"{scope}.{name}" if scope else name)
            if found is not None or not scope:
                return found
            scope = scope.rpartition(".")[0]

    def _find(self, full_name: str) -> Message | Enum | None:
        return self._messages.get(full_name) or self._enums.get(full_name)
