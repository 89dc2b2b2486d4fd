"""Reader of `.proto` files: proto2, proto3 and editions, as far as decoding needs them.

Options, services, extensions and reserved numbers are skipped. The grammar is read without recursion beyond
the nesting of messages, which is bounded. Gap: fields that `extend` adds show as unknown ones.
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.console.formats.bounds import SCHEMA_CHARACTERS_MAX, SCHEMA_DEPTH_MAX, UnusableSchema
from barnabas.console.protobuf.model import Enum, Field, File, Message

NUMBER_MAX: Final = (1 << 29) - 1
_TOKEN: Final = re.compile(
    r"""
      (?P<space> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<text> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
    | (?P<number> -?\.?[0-9][0-9A-Za-z.+]* )
    | (?P<word> \.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)* )
    | (?P<mark> [-{}\[\]()<>=;,:/+] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CLOSING: Final = {"{": "}", "[": "]", "(": ")", "<": ">"}
_LABELS: Final = ("optional", "required", "repeated")


def parse_proto(text: str) -> File:
    """UNUSABLE_SCHEMA names the line that cannot be read."""
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise UnusableSchema("the schema is too large")
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next = ""
        self._kind = ""
        self._is_implicit = False
        """Whether fields without a label have no presence: proto3."""
        self._advance()

    # --- tokens ---

    def _advance(self) -> str:
        """Take the next token; "" at the end."""
        taken = self._next
        while True:
            if self._at >= len(self._text):
                self._next, self._kind = "", "end"
                return taken
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise self._wrong(self._text[self._at])
            self._at = found.end()
            if found.lastgroup != "space":
                self._next, self._kind = found[0], found.lastgroup or ""
                return taken

    def _wrong(self, shown: str) -> UnusableSchema:
        line = self._text.count("\n", 0, self._at) + 1
        return UnusableSchema(f"line {line} of the schema cannot be read at {shown[:40]!r}")

    def _expect(self, mark: str) -> None:
        if self._next != mark:
            raise self._wrong(self._next)
        self._advance()

    def _word(self) -> str:
        if self._kind != "word":
            raise self._wrong(self._next)
        return self._advance()

    def _number(self) -> int:
        if self._kind != "number":
            raise self._wrong(self._next)
        shown = self._advance()
        try:
            if len(shown) > 20:
                raise ValueError
            return int(shown, 8) if re.fullmatch(r"-?0[0-7]+", shown) else int(shown, 0)
        except ValueError:
            raise self._wrong(shown) from None

    def _skip_statement(self) -> None:
        """To the semicolon, or behind the block that ends the statement."""
        while self._next != ";":
            if self._kind == "end":
                raise self._wrong("the end")
            if self._next == "{":
                self._skip_block()
                if self._next != ";":
                    return
                break
            if self._next in _CLOSING:
                self._skip_block()
            else:
                self._advance()
        self._advance()

    def _skip_block(self) -> None:
        waiting = [_CLOSING[self._advance()]]
        while waiting:
            if self._kind == "end":
                raise self._wrong("the end")
            shown = self._advance()
            if shown == waiting[-1]:
                waiting.pop()
            elif shown in _CLOSING and shown != "<":
                waiting.append(_CLOSING[shown])

    # --- declarations ---

    def file(self) -> File:
        found = File()
        while self._kind != "end":
            match self._next:
                case "syntax":
                    self._advance()
                    self._expect("=")
                    self._is_implicit = self._advance()[1:-1] == "proto3"
                    self._expect(";")
                case "package":
                    self._advance()
                    found.package = self._word()
                    self._expect(";")
                case "import":
                    self._import(found)
                case "message":
                    self._advance()
                    found.messages.append(self._message(found.package, 0))
                case "enum":
                    self._advance()
                    found.enums.append(self._enum(found.package))
                case ";":
                    self._advance()
                case "option" | "service" | "extend" | "edition":
                    self._skip_statement()
                case _:
                    raise self._wrong(self._next)
        return found

    def _import(self, found: File) -> None:
        self._advance()
        if self._next in ("public", "weak"):
            self._advance()
        if self._kind != "text":
            raise self._wrong(self._next)
        found.imports.append(self._advance()[1:-1])
        self._expect(";")

    def _message(self, scope: str, depth: int, name: str = "") -> Message:
        if depth > SCHEMA_DEPTH_MAX:
            raise UnusableSchema(f"the schema is nested more than {SCHEMA_DEPTH_MAX} levels deep")
        own = name or self._word()
        found = Message(f"{scope}.{own}" if scope else own)
        self._expect("{")
        while self._next != "}":
            self._member(found, depth)
        self._advance()
        return found

    def _member(self, message: Message, depth: int) -> None:
        match self._next:
            case "message":
                self._advance()
                message.messages.append(self._message(message.full_name, depth + 1))
            case "enum":
                self._advance()
                message.enums.append(self._enum(message.full_name))
            case "oneof":
                self._advance()
                self._oneof(message, depth)
            case "option" | "extensions" | "reserved" | "extend":
                self._skip_statement()
            case ";":
                self._advance()
            case _:
                self._field(message, depth)

    def _oneof(self, message: Message, depth: int) -> None:
        self._word()
        self._expect("{")
        while self._next != "}":
            if self._next == "option":
                self._skip_statement()
            elif self._next == ";":
                self._advance()
            else:
                self._field(message, depth, is_in_oneof=True)
        self._advance()

    def _field(self, message: Message, depth: int, *, is_in_oneof: bool = False) -> None:
        label = self._advance() if self._next in _LABELS else ""
        kind = self._word()
        if kind == "map" and self._next == "<":
            self._map(message)
            return
        name = self._word()
        self._expect("=")
        number = self._field_number()
        made = Field(
            name,
            number,
            kind,
            is_repeated=label == "repeated",
            has_presence=bool(label) or is_in_oneof or not self._is_implicit,
        )
        if kind == "group":
            group = self._message(message.full_name, depth + 1, name)
            message.messages.append(group)
            made.name, made.type, made.target = name.lower(), name, group
        else:
            self._options()
        message.fields[number] = made

    def _map(self, message: Message) -> None:
        self._expect("<")
        key = self._word()
        self._expect(",")
        value = self._word()
        self._expect(">")
        name = self._word()
        self._expect("=")
        number = self._field_number()
        self._options()
        entry = Message(f"{message.full_name}.{name}.entry", is_map_entry=True)
        entry.fields = {1: Field("key", 1, key), 2: Field("value", 2, value)}
        # The scope of the value's type is that of the message; the entry lies within it.
        message.messages.append(entry)
        message.fields[number] = Field(name, number, entry.full_name, is_repeated=True, target=entry)

    def _field_number(self) -> int:
        number = self._number()
        if not 1 <= number <= NUMBER_MAX:
            raise self._wrong(str(number))
        return number

    def _options(self) -> None:
        if self._next == "[":
            self._skip_block()
        self._expect(";")

    def _enum(self, scope: str) -> Enum:
        own = self._word()
        found = Enum(f"{scope}.{own}" if scope else own)
        self._expect("{")
        while self._next != "}":
            if self._next in ("option", "reserved"):
                self._skip_statement()
                continue
            if self._next == ";":
                self._advance()
                continue
            name = self._word()
            self._expect("=")
            negative = self._next == "-" and bool(self._advance())
            number = self._number()
            found.names.setdefault(-number if negative else number, name)
            self._options()
        self._advance()
        return found
