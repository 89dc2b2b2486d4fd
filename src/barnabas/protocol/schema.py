"""What a message is made of: the class declaration is the schema.

    class PartitionProduceData(Message):
        index: int = int32()
        records: RecordsField = records(nullable="0+")

    class ProduceRequest(Message, api=ApiKey.PRODUCE, versions="0-13", flexible="9+"):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        acks: int = int16()

One class serves all versions of its message. A field that a version lacks keeps its default
when it is decoded; when it is encoded, a value other than the default is dropped if the field
is ignorable and refused (UNSUPPORTED_VERSION) if it is not. Version ranges are written as
Kafka writes them: "3+", "0-12", "2".

Nothing but this declaration happens at import. The constructor, and the encoder and decoder
of each version, are compiled when they are first asked for (see `codegen`).

Two rules of our own. A tagged struct is None until somebody sets it: most answers carry none,
and building one per partition to say so is dear. Tagged fields that nobody declared are
skipped, not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias, dataclass_transform

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.regions import FileRegion

if TYPE_CHECKING:
    from barnabas.protocol.api_keys import ApiKey

VERSION_MAX = 0x7FFF

Buffer: TypeAlias = bytes | bytearray | memoryview
RecordsField: TypeAlias = Buffer | FileRegion | None
"""Record batches: a slice of the request when decoded, any of these when encoded."""
Part: TypeAlias = Buffer | FileRegion
Decoder: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, list[Part], bytearray], bytearray]
SlicedDecoder: TypeAlias = Callable[[memoryview, int, int], Generator[None, None, tuple[Any, int]]]
SlicedEncoder: TypeAlias = Callable[[Any, list[Part], bytearray], Generator[None, None, bytearray]]

STEP_MASK = 0x3F
"""Sliced code stops at the first element of an array and then at every 64th."""


class Pace(Enum):
    """How a codec deals with a message that has much in it."""

    WHOLE = 0
    """Reads and writes whatever there is, in one go."""
    BOUNDED = 1
    """Raises LargeMessage when there is more than one turn of the loop should take."""
    SLICED = 2
    """A generator: between its steps the loop may do something else."""


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
    """A type of the wire. `code` is its letter in `struct`, "" when its width varies."""

    name: str
    code: str = ""
    element: Kind | None = None
    """Set for arrays."""
    message: type[Message] | None = None
    """Set for structs."""


class Field:
    """One declared field; `name` is filled in by the class that it stands in."""

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
    """What the class line and the fields say, and what has been compiled from them so far."""

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
    """Turns the declared fields into slots."""

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
        namespace["__schema__"] = Schema(api, Versions.parse(versions), Versions.parse(flexible), fields)
        return super().__new__(mcs, name, bases, namespace)


class Message(metaclass=MessageType):
    """The base of every message and of every struct inside one."""

    __schema__: ClassVar[Schema]
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            """Stands in for the real constructor until the first instance is made."""
            from barnabas.protocol.codegen import compile_constructor  # noqa: PLC0415

            cls = type(self)
            cls.__init__ = compile_constructor(cls)
            cls.__init__(self, **values)

    @classmethod
    def decoder(cls, version: int) -> Callable[[memoryview, int], tuple[Self, int]]:
        """The function that reads this message: `(buffer, position) -> (message, end position)`.

        It raises MalformedMessage and nothing else. Bytes may remain after the end position.
        """
        return cls._decoder(version, Pace.WHOLE)

    @classmethod
    def bounded_decoder(cls, version: int) -> Callable[[memoryview, int], tuple[Self, int]]:
        """The same, but it may raise LargeMessage too."""
        return cls._decoder(version, Pace.BOUNDED)

    @classmethod
    def sliced_decoder(cls, version: int) -> SlicedDecoder:
        """The same in slices; the third argument is how many elements there may be."""
        return cls._decoder(version, Pace.SLICED)

    @classmethod
    def _decoder(cls, version: int, pace: Pace) -> Callable[..., Any]:
        decoder = cls.__schema__.decoders.get((version, pace))
        if decoder is None:
            from barnabas.protocol.decoding import compile_decoder  # noqa: PLC0415

            decoder = compile_decoder(cls, cls.check_version(version), pace)
            cls.__schema__.decoders[version, pace] = decoder
        return decoder

    @classmethod
    def encoder(cls, version: int) -> Callable[[Self, list[Part], bytearray], bytearray]:
        """The function that writes this message: `(message, parts, out) -> out`.

        It appends to `out`. Big buffers and file regions become parts of their own: then `out`
        as it was so far goes to `parts`, the region after it, and a fresh `out` is returned.
        """
        return cls._encoder(version, Pace.WHOLE)

    @classmethod
    def bounded_encoder(cls, version: int) -> Callable[[Self, list[Part], bytearray], bytearray]:
        """The same, but it may raise LargeMessage; what it has written by then is worthless."""
        return cls._encoder(version, Pace.BOUNDED)

    @classmethod
    def sliced_encoder(cls, version: int) -> SlicedEncoder:
        """The same in slices."""
        return cls._encoder(version, Pace.SLICED)

    @classmethod
    def _encoder(cls, version: int, pace: Pace) -> Callable[..., Any]:
        encoder = cls.__schema__.encoders.get((version, pace))
        if encoder is None:
            from barnabas.protocol.encoding import compile_encoder  # noqa: PLC0415

            encoder = compile_encoder(cls, cls.check_version(version), pace)
            cls.__schema__.encoders[version, pace] = encoder
        return encoder

    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """The message at `position`, and where it ends."""
        return cls.decoder(version)(memoryview(buffer), position)

    def encode(self, version: int) -> bytes:
        """All bytes in one piece, file regions read in: for tests and for small messages."""
        parts: list[Part] = []
        parts.append(type(self).encoder(version)(self, parts, bytearray()))
        return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)

    @classmethod
    def check_version(cls, version: int) -> int:
        """`version`, if this message has it."""
        if version not in cls.__schema__.versions:
            raise UnsupportedVersion(f"{cls.__name__} has no version {version}")
        return version

    @classmethod
    def supported_versions(cls) -> range:
        """Every version that is declared."""
        first, last = cls.__schema__.versions
        return range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = [field.name for field in self.__schema__.fields]
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __repr__(self) -> str:
        names = [field.name for field in self.__schema__.fields]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({shown})"
