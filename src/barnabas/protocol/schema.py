"""What a message is made of: the class declaration is the schema.

    class PartitionProduceData(Message):
        index: int = int32()
        records: RecordsField = records(nullable="0+")

    class ProduceRequest(Message, api=ApiKey.PRODUCE, versions="0-13"):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        acks: int = int16()

One class serves all versions of its message. A field that a version lacks keeps its default
when it is decoded; when it is encoded, a value other than the default is dropped if the field
is ignorable and refused (UNSUPPORTED_VERSION) if it is not. Version ranges are written as
Kafka writes them: "3+", "0-12", "2".

Nothing but this declaration happens at import. The constructor, and the encoder and decoder
of each version, are compiled when they are first asked for (see `codegen`), unless the wheel was built
with them (see `codecs`).

Two rules of our own. A tagged struct is None until somebody sets it: most answers carry none,
and building one per partition to say so is dear. Tagged fields that nobody declared are
skipped, not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.regions import FileRegion
from barnabas.protocol.codecs import written_codec
from barnabas.protocol.declarations import (
    Buffer,
    MessageType,
    Pace,
    Part,
    Schema,
    SlicedDecoder,
    SlicedEncoder,
)


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
            decoder = written_codec("decode", cls, cls.check_version(version), pace)
            if decoder is None:
                from barnabas.protocol.decoding import compile_decoder  # noqa: PLC0415

                decoder = compile_decoder(cls, version, pace)
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
            encoder = written_codec("encode", cls, cls.check_version(version), pace)
            if encoder is None:
                from barnabas.protocol.encoding import compile_encoder  # noqa: PLC0415

                encoder = compile_encoder(cls, version, pace)
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
