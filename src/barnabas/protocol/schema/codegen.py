"""Compilation of message declarations to straight-line Python.

A generic interpreter of schemas spends most of its time on finding the next field. Here that is decided once
per (message, version), and written down as Python source. Every nested struct is inlined, and neighbouring
fixed-width fields are merged into one `struct` call. An absent field becomes the store of a constant. Then
the source is compiled. `decoding` and `encoding` write it; this module holds the parts they share, and the
constructor.

To see the source: `print(codegen.source_of(ProduceRequest.decoder(9)))`. `codecs.writing` writes the same
source to files.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.core.ids import ZERO_UUID
from barnabas.protocol.schema.declarations import FRESH, Field, MessageType


class Source:
    """Lines of Python under construction, and the objects that they refer to by name."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 0
        self._serial = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Lines written inside the `with` are indented under `header`."""
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A local name that is unique in this function."""
        self._serial += 1
        return f"{stem}_{self._serial}"

    def refer(self, name: str, value: object) -> str:
        """Bind `value` to `name` for the generated code."""
        assert self.names.setdefault(name, value) == value, f"two things are called {name}"
        return name

    def packer(self, codes: str) -> struct.Struct:
        """One Struct per layout, shared by all code that uses the layout."""
        return _STRUCTS.setdefault(codes, struct.Struct(f">{codes}"))

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def define(self, function_name: str) -> Callable[..., Any]:
        """Compile the lines, which define `function_name`, and return that function."""
        text = self.text
        exec(compile(text, f"<{function_name}>", "exec"), self.names)  # noqa: S102 - our own text
        function: Callable[..., Any] = self.names[function_name]
        _TEXTS[function] = text
        return function


_STRUCTS: dict[str, struct.Struct] = {}
_TEXTS: dict[Callable[..., Any], str] = {}


def source_of(function: Callable[..., Any]) -> str:
    """Source of a compiled constructor, encoder or decoder."""
    return _TEXTS[function]


def default_expression(source: Source, field: Field) -> str:
    """An expression for a new default value of `field`."""
    if field.default is FRESH:
        if field.kind.message is not None:
            return source.refer(field.kind.message.__name__, field.kind.message) + "()"
        return "[]"
    if field.default is ZERO_UUID:
        return source.refer("ZERO_UUID", ZERO_UUID)
    return repr(field.default)


def compile_constructor(cls: MessageType) -> Callable[..., None]:
    """`__init__(self, *, …)` with the schema's default for every field."""
    source = Source()
    source.refer("FRESH", FRESH)
    parameters = ["self"]
    fields = cls.__schema__.fields
    if fields:
        parameters.append("*")
    for field in fields:
        default = "FRESH" if field.default is FRESH else default_expression(source, field)
        parameters.append(f"{field.name}={default}")
    with source.block(f"def __init__({', '.join(parameters)}):"):
        for field in fields:
            value = field.name
            if field.default is FRESH:
                value = f"{default_expression(source, field)} if {field.name} is FRESH else {field.name}"
            source.line(f"self.{field.name} = {value}")
        if not fields:
            source.line("pass")
    return source.define("__init__")
