"""Encoder generation for one message version.

An encoder appends to a bytearray. A length is packed together with the fixed-width fields before it, since a
compact length below 127 takes a single byte. Records are not copied: a file region, or a large buffer, ends
the current bytearray and becomes a part of its own.

Responses use the *bounded* encoder, which gives up when there are many elements, and then the *sliced* one, a
generator: see `decoding`.

An encoder refuses, with INVALID_REQUEST, every value that the decoder of the same version refuses: a string
above 32,767 bytes, text that is not Unicode, a number outside its field. Otherwise a log could contain a
record that no broker can load again. Long strings are detected where a compact length takes more than one
byte, so short ones cost nothing. `struct` and the UTF-8 codec detect the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.core.limits import ELEMENTS_PER_TURN_MAX, STRING_BYTES_MAX
from barnabas.core.regions import FileRegion
from barnabas.protocol.schema import primitives
from barnabas.protocol.schema.codegen import Source, default_expression
from barnabas.protocol.schema.declarations import (
    FRESH,
    NO_VERSIONS,
    STEP_MASK,
    Field,
    Kind,
    MessageType,
    Pace,
)
from barnabas.protocol.schema.written_codecs import codec_name

COPIED_BYTES_MAX = 2048
"""Records up to this size are copied: cheaper than one more element in a `writev`."""

PART_BYTES = 64 * 1024
"""Size at which a sliced encoder starts a new part: a buffer that keeps growing is copied again and again."""

NAMES = {
    "defer_elements": primitives.defer_elements,
    "unsigned_varint": primitives.unsigned_varint,
    "refuse_field": primitives.refuse_field,
    "refuse_string": primitives.refuse_string,
    "refuse_value": primitives.refuse_value,
    "StructError": struct.error,
    "pack": struct.pack,
    "FileRegion": FileRegion,
}
"""Names that the generated code may use, apart from message classes and layouts."""


def compile_encoder(cls: MessageType, version: int, pace: Pace) -> Callable[..., Any]:
    """The function `(message, parts, out) -> out`; the sliced one is a generator that returns it."""
    return write_encoder(cls, version, pace).define(codec_name("encode", cls, version, pace))


def write_encoder(cls: MessageType, version: int, pace: Pace) -> Source:
    """Source of the encoder."""
    return _EncoderWriter(cls, version, pace).write()


class _EncoderWriter:
    """Visits the fields in wire order; `_run` holds fixed-width values not yet written down."""

    def __init__(self, cls: MessageType, version: int, pace: Pace) -> None:
        self._cls = cls
        self._version = version
        self._pace = pace
        self._flexible = version in cls.__schema__.flexible
        self._source = Source()
        self._run: list[tuple[str, str]] = []
        self._out = "out"
        self._null_length = 0 if self._flexible else -1
        self._plus = " + 1" if self._flexible else ""

    def write(self) -> Source:
        source = self._source
        source.names.update(NAMES)
        function = codec_name("encode", self._cls, self._version, self._pace)
        message = source.refer(self._cls.__name__, self._cls)
        returned = "Generator[None, None, bytearray]" if self._pace is Pace.SLICED else "bytearray"
        with source.block(
            f"def {function}(message: {message}, parts: list[Part], out: bytearray) -> {returned}:"
        ):
            if self._pace is Pace.BOUNDED:
                source.line("elements = 0")
            elif self._pace is Pace.SLICED:
                source.line("yield")
            with source.block("try:"):
                self._struct(self._cls, "message")
                self._flush()
                source.line("return out")
            source.line("except (StructError, UnicodeEncodeError) as error:")
            source.line(f"    refuse_value('{self._cls.__name__}', {self._version}, error)")
        return source

    def _struct(self, cls: MessageType, value: str) -> None:
        """Write a whole struct; a run may stay pending at its end."""
        source = self._source
        tagged: list[Field] = []
        for field in cls.__schema__.fields:
            attribute = f"{value}.{field.name}"
            if self._version not in field.versions:
                if not field.ignorable:
                    source.line(f"if {self._differs(field, attribute)}:")
                    source.line(f"    refuse_field('{cls.__name__}.{field.name}', {self._version})")
            elif field.tag is not None:
                tagged.append(field)
            else:
                what = f"{cls.__name__}.{field.name}"
                self._value(field.kind, attribute, what, self._version in field.nullable)
        if self._flexible:
            self._tagged_section(cls, sorted(tagged, key=lambda field: field.tag or 0), value)

    def _value(self, kind: Kind, value: str, what: str, nullable: bool) -> None:
        if kind.code:
            self._run.append((kind.code, value))
        elif kind.name == "struct":
            self._nested_struct(kind, value, nullable)
        elif kind.name == "array":
            self._array(kind, value, what, nullable)
        else:
            self._sized(kind, value, what, nullable)

    def _nested_struct(self, kind: Kind, value: str, nullable: bool) -> None:
        assert kind.message is not None
        source = self._source
        inner = source.fresh("m")
        source.line(f"{inner} = {value}")
        if not nullable:
            self._struct(kind.message, inner)
            return
        self._run.append(("b", f"-1 if {inner} is None else 1"))
        self._flush()
        with source.block(f"if {inner} is not None:"):
            self._struct(kind.message, inner)
            self._flush()

    def _sized(self, kind: Kind, value: str, what: str, nullable: bool) -> None:
        """Strings, bytes and records: a length and that many bytes."""
        source = self._source
        raw = source.fresh("raw")
        given = source.fresh("text") if kind.name == "string" else raw
        source.line(f"{given} = {value}")
        measure = [f"length = len({raw}){self._plus}"]
        if kind.name == "string":
            measure.insert(0, f"{raw} = {given}.encode()")
        if nullable:
            source.line(f"if {given} is None:")
            source.line(f"    {raw} = b''")
            source.line(f"    length = {self._null_length}")
            with source.block("else:"):
                source.lines(measure)
        else:
            source.lines(measure)
        if kind.name == "string":
            self._length("h", what)
        else:
            self._length("i")
        if kind.name != "records":
            source.line(f"{self._out} += {raw}")
            return
        with source.block(f"if length > {COPIED_BYTES_MAX} or isinstance({raw}, FileRegion):"):
            source.line(f"if len({raw}):")
            source.line("    parts.append(out)")
            source.line(f"    parts.append({raw})")
            source.line("    out = bytearray()")
        source.line("else:")
        source.line(f"    out += {raw}")

    def _array(self, kind: Kind, value: str, what: str, nullable: bool) -> None:
        source = self._source
        element = kind.element
        assert element is not None
        items = source.fresh("items")
        source.line(f"{items} = {value}")
        if nullable:
            source.line(f"if {items} is None:")
            source.line(f"    {items} = []")
            source.line(f"    length = {self._null_length}")
            source.line("else:")
            source.line(f"    length = len({items}){self._plus}")
        else:
            source.line(f"length = len({items}){self._plus}")
        if self._pace is Pace.BOUNDED:
            source.line("elements += length")
            source.line(f"if elements > {ELEMENTS_PER_TURN_MAX}:")
            source.line("    defer_elements()")
        self._length("i")
        if element.code and element.name != "uuid":
            source.line(f"{self._out} += pack(f'>{{len({items})}}{element.code}', *{items})")
            return
        item = source.fresh("m")
        with self._elements(item, items):
            if element.message is not None:
                self._struct(element.message, item)
            else:
                self._value(element, item, what, nullable=False)
            self._flush()

    @contextmanager
    def _elements(self, item: str, items: str) -> Iterator[None]:
        """Lines written inside the `with` run for each `item` of `items`."""
        source = self._source
        if self._pace is not Pace.SLICED:
            with source.block(f"for {item} in {items}:"):
                yield
            return
        step = source.fresh("step")
        with source.block(f"for {step}, {item} in enumerate({items}):"):
            with source.block(f"if not {step} & {STEP_MASK}:"):
                if self._out == "out":
                    source.line(f"if len(out) > {PART_BYTES}:")
                    source.line("    parts.append(out)")
                    source.line("    out = bytearray()")
                source.line("yield")
            yield

    def _tagged_section(self, cls: MessageType, tagged: list[Field], value: str) -> None:
        """Write the tagged fields. Those at their default are left out: nearly always all of them."""
        source = self._source
        if not tagged:
            self._run.append(("B", "0"))
            return
        self._flush()
        conditions = [self._differs(field, f"{value}.{field.name}") for field in tagged]
        source.line(f"if not ({' or '.join(conditions)}):")
        source.line(f"    {self._out}.append(0)")
        with source.block("else:"):
            count, section = source.fresh("count"), source.fresh("section")
            source.line(f"{count} = 0")
            source.line(f"{section} = bytearray()")
            for field, condition in zip(tagged, conditions, strict=True):
                with source.block(f"if {condition}:"):
                    source.line(f"{count} += 1")
                    outer, self._out = self._out, source.fresh("tag_out")
                    source.line(f"{self._out} = bytearray()")
                    what = f"{cls.__name__}.{field.name}"
                    self._value(field.kind, f"{value}.{field.name}", what, self._version in field.nullable)
                    self._flush()
                    size = f"unsigned_varint(len({self._out}))"
                    source.line(f"{section} += unsigned_varint({field.tag}) + {size} + {self._out}")
                    self._out = outer
            source.line(f"{self._out} += unsigned_varint({count}) + {section}")

    def _differs(self, field: Field, value: str) -> str:
        """A condition: `value` differs from the default of `field`."""
        struct_class = field.kind.message
        if struct_class is not None and field.tag is not None and field.nullable == NO_VERSIONS:
            inner = [self._differs(each, f"{value}.{each.name}") for each in struct_class.__schema__.fields]
            return f"{value} is not None and ({' or '.join(inner)})"
        if field.kind.name == "array" and field.default is FRESH:
            return f"({value} is None or len({value}))" if field.nullable != NO_VERSIONS else value
        if field.default is None:
            return f"{value} is not None"
        if field.default is False:
            return value
        return f"{value} != {default_expression(self._source, field)}"

    def _length(self, code: str, string: str = "") -> None:
        """Write `length`, which is one more than the real one in flexible versions.

        A compact length can exceed the limit of a `string`, whose name errors mention.
        """
        source = self._source
        if not self._flexible:
            self._run.append((code, "length"))
            self._flush()
            return
        run = list(self._run)
        if not run:
            source.line("if length < 128:")
            source.line(f"    {self._out}.append(length)")
            with source.block("else:"):
                self._check_string(string)
                source.line(f"{self._out} += unsigned_varint(length)")
            return
        with source.block("if length < 128:"):
            self._run.append(("B", "length"))
            self._flush()
        with source.block("else:"):
            self._check_string(string)
            self._run.extend(run)
            self._flush()
            source.line(f"{self._out} += unsigned_varint(length)")

    def _check_string(self, string: str) -> None:
        if string:
            self._source.line(f"if length > {STRING_BYTES_MAX + 1}:")
            self._source.line(f"    refuse_string({string!r}, length - 1)")

    def _flush(self) -> None:
        """Write the pending fixed-width values as one."""
        source, run = self._source, self._run
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "B":
            source.line(f"{self._out}.append({run[0][1]})")
        else:
            pack = source.refer(f"pack_{codes.replace('?', 'o')}", source.packer(codes).pack)
            source.line(f"{self._out} += {pack}({', '.join(value for _, value in run)})")
        run.clear()
