"""Decoder generation for one message version.

The generated code checks bounds where Python would not: a slice silently stops at the end of its buffer. So
every length is compared with the remaining bytes before its use. Where Python raises (a fixed-width field
past the end, bad UTF-8), one handler around the whole function converts the error to MalformedMessage. The
length of an array is compared with the fewest bytes that this many elements need. So a decoder allocates no
more than a multiple of the received bytes.

That bounds memory and not time: a frame of the permitted size may hold tens of millions of elements. So
requests use two other kinds of decoder, which count the elements of the whole message (`declarations.Pace`).
The *bounded* decoder gives up above the elements or bytes of one turn; records do not count, because they are
not copied. The *sliced* decoder then starts over: it is a generator that yields between elements, and refuses
more elements than a request may have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.core.ids import Uuid
from barnabas.core.limits import BYTES_MAX, BYTES_PER_TURN_MAX, ELEMENTS_PER_TURN_MAX, STRING_BYTES_MAX
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.schema import primitives
from barnabas.protocol.schema.codegen import Source, default_expression
from barnabas.protocol.schema.declarations import STEP_MASK, Field, Kind, MessageType, Pace
from barnabas.protocol.schema.written_codecs import codec_name

NAMES = {
    "read_unsigned_varint": primitives.read_unsigned_varint,
    "read_tag_count": primitives.read_tag_count,
    "skip_tags": primitives.skip_tags,
    "defer_elements": primitives.defer_elements,
    "reject_elements": primitives.reject_elements,
    "reject_length": primitives.reject_length,
    "reject_null": primitives.reject_null,
    "reject_tag_size": primitives.reject_tag_size,
    "new": object.__new__,
    "new_bytes": bytes.__new__,
    "Uuid": Uuid,
    "unpack_from": struct.unpack_from,
    "MalformedMessage": MalformedMessage,
    "StructError": struct.error,
}
"""Names that the generated code may use, apart from message classes and layouts."""


def compile_decoder(cls: MessageType, version: int, pace: Pace) -> Callable[..., Any]:
    """The function `(buffer, position) -> (message, end position)`.

    The sliced one also takes `elements_max`, and is a generator that returns these two.
    """
    return write_decoder(cls, version, pace).define(codec_name("decode", cls, version, pace))


def write_decoder(cls: MessageType, version: int, pace: Pace) -> Source:
    """Source of the decoder."""
    return _DecoderWriter(cls, version, pace).write()


class _DecoderWriter:
    """Visits the fields in wire order; `_run` holds fixed-width reads not yet written down."""

    def __init__(self, cls: MessageType, version: int, pace: Pace) -> None:
        self._cls = cls
        self._version = version
        self._pace = pace
        self._flexible = version in cls.__schema__.flexible
        self._source = Source()
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []

    def write(self) -> Source:
        source = self._source
        source.names.update(NAMES)
        function = codec_name("decode", self._cls, self._version, self._pace)
        with source.block(f"def {function}({self._signature()}:"):
            source.lines(("length: int", "count: int"))
            source.line("limit = len(buffer)")
            if self._pace is not Pace.WHOLE:
                source.line("elements = 0")
            with source.block("try:"):
                if self._pace is Pace.SLICED:
                    source.line("yield")
                elif self._pace is Pace.BOUNDED and not _has_records(self._cls):
                    source.line(f"if limit - position > {BYTES_PER_TURN_MAX}:")
                    source.line("    defer_elements()")
                message = self._struct(self._cls)
                source.line(f"return {message}, position")
            source.line("except (IndexError, StructError) as error:")
            source.line(
                f"    raise MalformedMessage(f'{self._cls.__name__} is cut short: {{error}}') from None"
            )
            source.line("except UnicodeDecodeError as error:")
            source.line(
                f"    raise MalformedMessage(f'{self._cls.__name__} has text that is not UTF-8') from None"
            )
        return source

    def _signature(self) -> str:
        name = self._source.refer(self._cls.__name__, self._cls)
        returned = f"tuple[{name}, int]"
        if self._pace is not Pace.SLICED:
            return f"buffer: memoryview, position: int) -> {returned}"
        return f"buffer: memoryview, position: int, elements_max: int) -> Generator[None, None, {returned}]"

    def _struct(self, cls: MessageType) -> str:
        """Write the code that reads a struct; return the struct's name."""
        source = self._source
        target = source.fresh("m")
        source.line(f"{target} = new({source.refer(cls.__name__, cls)})")
        tagged: list[Field] = []
        for field in cls.__schema__.fields:
            attribute = f"{target}.{field.name}"
            if self._version not in field.versions or field.tag is not None:
                source.line(f"{attribute} = {default_expression(source, field)}")
                if self._version in field.versions:
                    tagged.append(field)
            else:
                self._value(
                    field.kind, attribute, f"{cls.__name__}.{field.name}", self._version in field.nullable
                )
        if self._flexible:
            self._tagged_section(cls, target, tagged)
        self._flush()
        return target

    def _value(self, kind: Kind, target: str, what: str, nullable: bool) -> None:
        """Write the code that reads one value into `target`, an attribute or a local."""
        if kind.name == "uuid":
            raw = self._source.fresh("raw")
            self._run.append((kind.code, raw))
            self._after_run.append(f"{target} = new_bytes(Uuid, {raw})")
        elif kind.code:
            self._run.append((kind.code, target))
        elif kind.name == "struct":
            self._nested_struct(kind, target, nullable)
        elif kind.name == "array":
            self._array(kind, target, what, nullable)
        else:
            self._sized(kind, target, what, nullable)

    def _nested_struct(self, kind: Kind, target: str, nullable: bool) -> None:
        assert kind.message is not None
        source = self._source
        if not nullable:
            self._flush()
            source.line(f"{target} = {self._struct(kind.message)}")
            return
        present = source.fresh("present")
        self._run.append(("b", present))
        self._flush()
        source.line(f"if {present} < 0:")
        source.line(f"    {target} = None")
        with source.block("else:"):
            source.line(f"{target} = {self._struct(kind.message)}")

    def _sized(self, kind: Kind, target: str, what: str, nullable: bool) -> None:
        """Strings, bytes and records: a length and that many bytes."""
        source = self._source
        self._length("h" if kind.name == "string" else "i", what if kind.name == "string" else "")
        if not nullable:
            self._slice(kind, target, what)
            return
        source.line("if length < 0:")
        source.line(f"    {target} = None")
        with source.block("else:"):
            self._slice(kind, target, what)

    def _slice(self, kind: Kind, target: str, what: str) -> None:
        source = self._source
        source.line("end = position + length")
        source.line("if not position <= end <= limit:")
        source.line(f"    reject_length({what!r}, length, position, limit)")
        if kind.name == "bytes" and self._pace is not Pace.WHOLE:
            source.line(f"if length > {BYTES_MAX}:")
            source.line(f"    reject_length({what!r}, length, position, limit)")
        piece = "buffer[position:end]"
        value = {"string": f"str({piece}, 'utf-8')", "bytes": f"bytes({piece})", "records": piece}[kind.name]
        source.line(f"{target} = {value}")
        source.line("position = end")

    def _array(self, kind: Kind, target: str, what: str, nullable: bool) -> None:
        source = self._source
        element = kind.element
        assert element is not None
        size = source.fresh("size")
        source.line(f"{size}: int")
        self._length("i", into=size)
        source.line(f"if {size} < 0:")
        source.line(f"    {f'{target} = None' if nullable else f'reject_null({what!r})'}")
        least = self._least_size(element)
        source.line(f"elif {size}{'' if least == 1 else f' * {least}'} > limit - position:")
        source.line(f"    reject_length({what!r}, {size}, position, limit)")
        with source.block("else:"):
            self._count(size)
            if element.code and element.name != "uuid":
                source.line(f"{target} = list(unpack_from(f'>{{{size}}}{element.code}', buffer, position))")
                source.line(f"position += {size} * {struct.calcsize(f'>{element.code}')}")
            else:
                items = source.fresh("items")
                source.line(f"{target} = {items} = []")
                with self._elements(size):
                    if element.message is not None:
                        source.line(f"{items}.append({self._struct(element.message)})")
                    else:
                        item = source.fresh("item")
                        self._value(element, item, what, nullable=False)
                        self._flush()
                        source.line(f"{items}.append({item})")

    def _tagged_section(self, cls: MessageType, target: str, tagged: list[Field]) -> None:
        source = self._source
        self._run.append(("B", "count"))
        self._flush()
        with source.block("if count:"):
            source.line("count, position = read_tag_count(buffer, position - 1)")
            self._count("count")
            if tagged:
                self._tagged_fields(cls, target, tagged)
            else:
                source.line("position = skip_tags(buffer, position, count)")

    def _tagged_fields(self, cls: MessageType, target: str, tagged: list[Field]) -> None:
        source = self._source
        tag, end, tags = source.fresh("tag"), source.fresh("tag_end"), source.fresh("tags")
        source.line(f"{tags} = count")
        with self._elements(tags):
            source.line(f"{tag}, position = read_unsigned_varint(buffer, position)")
            source.line("length, position = read_unsigned_varint(buffer, position)")
            source.line(f"{end} = position + length")
            source.line(f"if {end} > limit:")
            source.line(f"    reject_length('{cls.__name__} tagged field', length, position, limit)")
            for field in tagged:
                what = f"{cls.__name__}.{field.name}"
                with source.block(f"{'if' if field is tagged[0] else 'elif'} {tag} == {field.tag}:"):
                    self._value(field.kind, f"{target}.{field.name}", what, self._version in field.nullable)
                    self._flush()
                    source.line(f"if position != {end}:")
                    source.line(f"    reject_tag_size({what!r})")
            source.line("else:")
            source.line(f"    position = {end}")

    def _count(self, number: str) -> None:
        """Write the code that counts these elements, before any of them is read."""
        if self._pace is Pace.WHOLE:
            return
        bound, refuse = {
            Pace.BOUNDED: (str(ELEMENTS_PER_TURN_MAX), "defer_elements()"),
            Pace.SLICED: ("elements_max", "reject_elements(elements, elements_max)"),
        }[self._pace]
        self._source.line(f"elements += {number}")
        self._source.line(f"if elements > {bound}:")
        self._source.line(f"    {refuse}")

    @contextmanager
    def _elements(self, number: str) -> Iterator[None]:
        """Lines written inside the `with` run for each element. They do not assign `number`, which mypyc
        reads again before each."""
        if self._pace is not Pace.SLICED:
            with self._source.block(f"for _ in range({number}):"):
                yield
            return
        step = self._source.fresh("step")
        with self._source.block(f"for {step} in range({number}):"):
            self._source.line(f"if not {step} & {STEP_MASK}:")
            self._source.line("    yield")
            yield

    def _length(self, code: str, string: str = "", into: str = "length") -> None:
        """Write the code that reads a length; null is -1 in every encoding.

        A compact length can exceed the limit of a `string`, whose name errors mention.
        """
        if not self._flexible:
            self._run.append((code, into))
            self._flush()
            return
        self._run.append(("B", into))
        self._flush()
        self._source.line(f"if {into} > 127:")
        self._source.line(f"    {into}, position = read_unsigned_varint(buffer, position - 1)")
        if string:
            self._source.line(f"    if {into} > {STRING_BYTES_MAX + 1}:")
            self._source.line(f"        reject_length({string!r}, {into} - 1, position, limit)")
        self._source.line(f"{into} -= 1")

    def _flush(self) -> None:
        """Write the pending fixed-width reads as one."""
        source, run = self._source, self._run
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "B":
            source.line(f"{run[0][1]} = buffer[position]")
        else:
            unpack = source.refer(f"unpack_{codes.replace('?', 'o')}", source.packer(codes).unpack_from)
            source.line(f"{', '.join(target for _, target in run)}, = {unpack}(buffer, position)")
        source.line(f"position += {source.packer(codes).size}")
        source.lines(self._after_run)
        run.clear()
        self._after_run.clear()

    def _least_size(self, kind: Kind) -> int:
        """The fewest bytes that a value can take on the wire."""
        if kind.code:
            return struct.calcsize(f">{kind.code}")
        if kind.message is not None:
            present = [
                field
                for field in kind.message.__schema__.fields
                if self._version in field.versions and field.tag is None
            ]
            sizes = [
                1
                if field.kind.message is not None and self._version in field.nullable
                else self._least_size(field.kind)
                for field in present
            ]
            return max(1, sum(sizes) + self._flexible)
        if self._flexible:
            return 1
        return 2 if kind.name == "string" else 4


def _has_records(cls: MessageType) -> bool:
    for field in cls.__schema__.fields:
        inner = (field.kind.element or field.kind).message
        if field.kind.name == "records" or (inner is not None and _has_records(inner)):
            return True
    return False
