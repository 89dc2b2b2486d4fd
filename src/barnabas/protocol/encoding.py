"""Writing the encoder of one message version.

An encoder appends to a bytearray. The length of what follows is packed together with the
fixed-width fields before it, since a length below 127 fits the single byte that a compact
length then takes. Records are not copied: a file region, or a buffer of some size, ends the
bytearray of the moment and becomes a part of the answer by itself.
"""

from __future__ import annotations

import struct

from barnabas.core.regions import FileRegion
from barnabas.protocol import primitives
from barnabas.protocol.codegen import Source, default_expression
from barnabas.protocol.fields import FRESH
from barnabas.protocol.schema import Encoder, Field, Kind, Message

COPIED_BYTES_MAX = 2048
"""Records up to this size are copied: cheaper than one more element in a `writev`."""


def compile_encoder(cls: type[Message], version: int) -> Encoder:
    """The function `(message, parts, out) -> out`."""
    return _EncoderWriter(cls, version).write()


class _EncoderWriter:
    """Walks the fields in wire order; `_run` holds fixed-width values not yet written down."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._flexible = version in cls.__schema__.flexible
        self._source = Source()
        self._run: list[tuple[str, str]] = []
        self._out = "out"

    def write(self) -> Encoder:
        source = self._source
        source.refer("unsigned_varint", primitives.unsigned_varint)
        source.refer("refuse_field", primitives.refuse_field)
        source.refer("pack", struct.pack)
        source.refer("FileRegion", FileRegion)
        function = f"encode_{self._cls.__name__}_v{self._version}"
        source.line(f"def {function}(message, parts, out):")
        source.indent()
        self._struct(self._cls, "message")
        self._flush()
        source.line("return out")
        return source.define(function)

    def _struct(self, cls: type[Message], value: str) -> None:
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
                self._value(field.kind, attribute, self._version in field.nullable)
        if self._flexible:
            self._tagged_section(sorted(tagged, key=lambda field: field.tag or 0), value)

    def _value(self, kind: Kind, value: str, nullable: bool) -> None:
        if kind.code:
            self._run.append((kind.code, value))
        elif kind.name == "struct":
            self._nested_struct(kind, value, nullable)
        elif kind.name == "array":
            self._array(kind, value, nullable)
        else:
            self._sized(kind, value, nullable)

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
        source.line(f"if {inner} is not None:")
        source.indent()
        self._struct(kind.message, inner)
        self._flush()
        source.dedent()

    def _sized(self, kind: Kind, value: str, nullable: bool) -> None:
        """Strings, bytes and records: a length and that many bytes."""
        source = self._source
        raw = source.fresh("raw")
        source.line(f"{raw} = {value}")
        own = f"{raw}.encode()" if kind.name == "string" else raw
        if nullable:
            source.line(f"if {raw} is None:")
            source.line(f"    {raw} = b''")
            source.line(f"    length = {0 if self._flexible else -1}")
            source.line("else:")
            source.indent()
        if own != raw:
            source.line(f"{raw} = {own}")
        source.line(f"length = len({raw}){' + 1' if self._flexible else ''}")
        if nullable:
            source.dedent()
        self._length("h" if kind.name == "string" else "i")
        if kind.name != "records":
            source.line(f"{self._out} += {raw}")
            return
        source.line(f"if length > {COPIED_BYTES_MAX} or isinstance({raw}, FileRegion):")
        source.indent()
        source.line(f"if len({raw}):")
        source.line("    parts.append(out)")
        source.line(f"    parts.append({raw})")
        source.line("    out = bytearray()")
        source.dedent()
        source.line("else:")
        source.line(f"    out += {raw}")

    def _array(self, kind: Kind, value: str, nullable: bool) -> None:
        source = self._source
        element = kind.element
        assert element is not None
        items = source.fresh("items")
        source.line(f"{items} = {value}")
        if nullable:
            source.line(f"if {items} is None:")
            source.line(f"    {items} = ()")
            source.line(f"    length = {0 if self._flexible else -1}")
            source.line("else:")
            source.line(f"    length = len({items}){' + 1' if self._flexible else ''}")
        else:
            source.line(f"length = len({items}){' + 1' if self._flexible else ''}")
        self._length("i")
        if element.code and element.name != "uuid":
            source.line(f"{self._out} += pack(f'>{{len({items})}}{element.code}', *{items})")
            return
        item = source.fresh("m")
        source.line(f"for {item} in {items}:")
        source.indent()
        if element.message is not None:
            self._struct(element.message, item)
        else:
            self._value(element, item, nullable=False)
        self._flush()
        source.dedent()

    def _tagged_section(self, tagged: list[Field], value: str) -> None:
        """Fields at their default are left out; nearly always that is all of them."""
        source = self._source
        if not tagged:
            self._run.append(("B", "0"))
            return
        self._flush()
        conditions = [self._differs(field, f"{value}.{field.name}") for field in tagged]
        source.line(f"if not ({' or '.join(conditions)}):")
        source.line(f"    {self._out}.append(0)")
        source.line("else:")
        source.indent()
        count, section = source.fresh("count"), source.fresh("section")
        source.line(f"{count} = 0")
        source.line(f"{section} = bytearray()")
        for field, condition in zip(tagged, conditions, strict=True):
            source.line(f"if {condition}:")
            source.indent()
            source.line(f"{count} += 1")
            outer, self._out = self._out, source.fresh("tag_out")
            source.line(f"{self._out} = bytearray()")
            self._value(field.kind, f"{value}.{field.name}", self._version in field.nullable)
            self._flush()
            source.line(
                f"{section} += unsigned_varint({field.tag}) + unsigned_varint(len({self._out})) + {self._out}"
            )
            self._out = outer
            source.dedent()
        source.line(f"{self._out} += unsigned_varint({count}) + {section}")
        source.dedent()

    def _differs(self, field: Field, value: str) -> str:
        """A condition: `value` is not what `field` is by default."""
        if field.kind.message is not None and (field.tag is not None or field.default is None):
            if field.tag is None:
                return f"{value} is not None"
            inner = [
                self._differs(each, f"{value}.{each.name}") for each in field.kind.message.__schema__.fields
            ]
            return f"{value} is not None and ({' or '.join(inner)})"
        if field.default is FRESH and field.kind.message is None:
            return f"({value} is None or len({value}))" if field.nullable.last >= 0 else value
        if field.default is None:
            return f"{value} is not None"
        if field.default is False:
            return value
        return f"{value} != {default_expression(self._source, field)}"

    def _length(self, code: str) -> None:
        """Write `length`, which is one more than the real one in flexible versions."""
        source = self._source
        if not self._flexible:
            self._run.append((code, "length"))
            self._flush()
            return
        run = list(self._run)
        if not run:
            source.line("if length < 128:")
            source.line(f"    {self._out}.append(length)")
            source.line("else:")
            source.line(f"    {self._out} += unsigned_varint(length)")
            return
        source.line("if length < 128:")
        source.indent()
        self._run.append(("B", "length"))
        self._flush()
        source.dedent()
        source.line("else:")
        source.indent()
        self._run.extend(run)
        self._flush()
        source.line(f"{self._out} += unsigned_varint(length)")
        source.dedent()

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
