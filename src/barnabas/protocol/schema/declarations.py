"""Declared schema of a message: versions, kinds and fields.

`fields` writes it, `codegen`, `decoding` and `encoding` read it, and `message` puts it into a `Message`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias, dataclass_transform

from barnabas.core.regions import FileRegion
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey

VERSION_MAX = 0x7FFF

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordsField: TypeAlias = Buffer | FileRegion | None
"""Record batches: a slice of the request when decoded, any of these when encoded."""
Part: TypeAlias = Buffer | FileRegion
Encoder: TypeAlias = Callable[[Any, list[Part], bytearray], bytearray]
SlicedDecoder: TypeAlias = Callable[[memoryview, int, int], Sliced[tuple[Any, int]]]
SlicedEncoder: TypeAlias = Callable[[Any, list[Part], bytearray], Sliced[bytearray]]

FRESH = object()
"""Default of a field whose every instance needs its own list or struct."""

STEP_MASK = 0x3F
"""Sliced code stops at the first element of an array and then at every 64th."""


class Pace(Enum):
    """Handling of a large message by a codec."""

    WHOLE = 0
    """Decodes and encodes any message in one turn."""
    BOUNDED = 1
    """Raises LargeMessage when there is more than one turn of the loop should take."""
    SLICED = 2
    """A generator: the loop may run other work between its steps."""


class Versions(NamedTuple):
    """An inclusive range of versions; empty when `last` is below `first`."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


NO_VERSIONS = Versions(0, -1)


class Kind(NamedTuple):
    """A wire type. `code` is its letter in `struct`, "" when its width varies."""

    name: str
    code: str = ""
    element: Kind | None = None
    """Set for arrays."""
    message: MessageType | None = None
    """Set for structs."""


class Field:
    """One declared field; the metaclass fills in `name`."""

    __slots__ = ("default", "ignorable", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self, kind: Kind, versions: str, nullable: str, default: object, ignorable: bool, tag: int | None
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = Versions.parse(versions)
        self.nullable = Versions.parse(nullable)
        self.default = default
        self.ignorable = ignorable
        self.tag = tag

    def __repr__(self) -> str:
        return f"Field({self.name}: {self.kind.name} {self.versions.first}-{self.versions.last})"


class Schema:
    """The declaration of a message class, and the codecs compiled from it so far."""

    __slots__ = ("api", "decoders", "encoders", "fields", "flexible", "versions")

    def __init__(
        self, api: ApiKey | None, versions: Versions, flexible: Versions, fields: tuple[Field, ...]
    ) -> None:
        self.api = api
        self.versions = versions
        self.flexible = flexible
        self.fields = fields
        self.decoders: dict[tuple[int, Pace], Callable[..., Any]] = {}
        self.encoders: dict[tuple[int, Pace], Callable[..., Any]] = {}


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Turns the declared fields into slots.

    The versions of a request or response are those of its API's row; other messages declare their own.
    """

    __schema__: Schema

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api: ApiKey | None = None,
        versions: str = "none",
        flexible: str = "none",
    ) -> MessageType:
        fields = tuple(value for value in namespace.values() if isinstance(value, Field))
        for attribute in [key for key, value in namespace.items() if isinstance(value, Field)]:
            namespace.pop(attribute).name = attribute
        namespace["__slots__"] = tuple(field.name for field in fields)
        if api is not None:
            declared = Versions(api.versions[0], api.versions[-1])
            flexible = f"{api.flexible_since}+"
        else:
            declared = Versions.parse(versions)
        namespace["__schema__"] = Schema(api, declared, Versions.parse(flexible), fields)
        return super().__new__(mcs, name, bases, namespace)
