"""Message base class: the class declaration is the schema.

    class PartitionProduceData(Message):
        index: int = int32()
        records: RecordsField = records(nullable="0+")

    class ProduceRequest(Message, api=ApiKey.PRODUCE):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        acks: int = int16()

One class serves all versions of its message, which its row of `ApiKey` holds. A field that a version lacks
keeps its default when the message is decoded. When it is encoded, a value other than the default is dropped
if the field is ignorable, and refused (UNSUPPORTED_VERSION) if it is not. Version ranges are written as Kafka
writes them: "3+", "0-12", "2".

Only this declaration runs at import. The constructor, and the encoder and decoder of each version, are
compiled at their first use (see `codegen`), unless the wheel carries them (see `codecs`).

Two rules differ from Kafka's generated classes. A tagged struct is None until it is set: most responses
carry none, and building one per partition is expensive. Unknown tagged fields are skipped, not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from barnabas.core.errors import UnsupportedVersion
from barnabas.core.regions import FileRegion
from barnabas.protocol.schema.declarations import (
    Buffer,
    MessageType,
    Pace,
    Part,
    Schema,
    SlicedDecoder,
    SlicedEncoder,
)
from barnabas.protocol.schema.written_codecs import written_codec


class Message(metaclass=MessageType):
    """Base of every message and of every struct inside one."""

    __schema__: ClassVar[Schema]
    __hash__ = None  # type: ignore[assignment]

    if not TYPE_CHECKING:

        def __init__(self, **values: object) -> None:
            """Replaced by the compiled constructor when the first instance is made."""
            from barnabas.protocol.schema.codegen import compile_constructor  # noqa: PLC0415

            cls = type(self)
            cls.__init__ = compile_constructor(cls)
            cls.__init__(self, **values)

    @classmethod
    def decoder(cls, version: int) -> Callable[[memoryview, int], tuple[Self, int]]:
        """The function that decodes this message: `(buffer, position) -> (message, end position)`.

        It raises MalformedMessage and nothing else. Bytes may remain after the end position.
        """
        return cls._decoder(version, Pace.WHOLE)

    @classmethod
    def bounded_decoder(cls, version: int) -> Callable[[memoryview, int], tuple[Self, int]]:
        """Like `decoder`, but it may raise LargeMessage too."""
        return cls._decoder(version, Pace.BOUNDED)

    @classmethod
    def sliced_decoder(cls, version: int) -> SlicedDecoder:
        """Like `decoder`, in slices; the third argument limits the number of elements."""
        return cls._decoder(version, Pace.SLICED)

    @classmethod
    def _decoder(cls, version: int, pace: Pace) -> Callable[..., Any]:
        decoder = cls.__schema__.decoders.get((version, pace))
        if decoder is None:
            decoder = written_codec("decode", cls, cls.check_version(version), pace)
            if decoder is None:
                from barnabas.protocol.schema.decoding import compile_decoder  # noqa: PLC0415

                decoder = compile_decoder(cls, version, pace)
            cls.__schema__.decoders[version, pace] = decoder
        return decoder

    @classmethod
    def encoder(cls, version: int) -> Callable[[Self, list[Part], bytearray], bytearray]:
        """The function that encodes this message: `(message, parts, out) -> out`.

        It appends to `out`. Large buffers and file regions become parts of their own: the current `out` goes
        to `parts`, the region follows, and a new `out` is returned.
        """
        return cls._encoder(version, Pace.WHOLE)

    @classmethod
    def bounded_encoder(cls, version: int) -> Callable[[Self, list[Part], bytearray], bytearray]:
        """Like `encoder`, but it may raise LargeMessage; the bytes written until then are useless."""
        return cls._encoder(version, Pace.BOUNDED)

    @classmethod
    def sliced_encoder(cls, version: int) -> SlicedEncoder:
        """Like `encoder`, in slices."""
        return cls._encoder(version, Pace.SLICED)

    @classmethod
    def _encoder(cls, version: int, pace: Pace) -> Callable[..., Any]:
        encoder = cls.__schema__.encoders.get((version, pace))
        if encoder is None:
            encoder = written_codec("encode", cls, cls.check_version(version), pace)
            if encoder is None:
                from barnabas.protocol.schema.encoding import compile_encoder  # noqa: PLC0415

                encoder = compile_encoder(cls, version, pace)
            cls.__schema__.encoders[version, pace] = encoder
        return encoder

    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> tuple[Self, int]:
        """The message at `position`, and its end position."""
        return cls.decoder(version)(memoryview(buffer), position)

    def encode(self, version: int) -> bytes:
        """All bytes in one piece, file regions read in: for tests and small messages."""
        parts: list[Part] = []
        parts.append(type(self).encoder(version)(self, parts, bytearray()))
        return b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)

    @classmethod
    def check_version(cls, version: int) -> int:
        """`version`, if this message has it; UNSUPPORTED_VERSION otherwise."""
        if version not in cls.__schema__.versions:
            raise UnsupportedVersion(f"{cls.__name__} has no version {version}")
        return version

    @classmethod
    def supported_versions(cls) -> range:
        """All declared versions."""
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
