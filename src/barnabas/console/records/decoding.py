"""Bytes of keys and values, as people read them: JSON, text, Avro, Protobuf, MessagePack, or hexadecimal.

Avro and Protobuf are decoded by the schema that a registry or a user has for them. Protobuf without a schema
shows its fields by number and type.

The result is bounded text: a page puts it into text nodes and nothing else. Control
characters and characters that reorder text are shown as their code points, so that a value looks like what
it is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Protocol, get_args

from barnabas.console.formats.binary import (
    read_cbor,
    read_float,
    read_integer,
    read_message_pack,
    read_uuid,
)
from barnabas.console.formats.bounds import Undecodable
from barnabas.console.formats.json_text import json_text
from barnabas.console.protobuf.wire import protoscope
from barnabas.console.schemas.decoders import INLINE_BYTES_MAX, Decoded, without_frame

Form = Literal[
    "json", "text", "avro", "protobuf", "msgpack", "cbor", "integer", "float", "uuid", "base64", "hex"
]
Format = Literal["auto", Form]
FORMATS: Final[tuple[Format, ...]] = ("auto", *get_args(Form))

PREVIEW_CHARACTERS: Final = 240
SHOWN_BYTES_MAX: Final = 256 * 1024
"""Of one key or value on its own page; the rest is in the download."""
JSON_BYTES_MAX: Final = 2 * 1024 * 1024
JSON_PREVIEW_BYTES_MAX: Final = 128 * 1024
"""The beginning of a larger value is shown as it is, in a row of many."""
HEX_LINE: Final = 16
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ud800-\udfff\ufeff]"
)
"""Control characters, those that hide or reorder text, and halves of pairs, which no encoding has."""


_READERS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "msgpack": read_message_pack,
    "cbor": read_cbor,
    "integer": read_integer,
    "float": read_float,
    "uuid": read_uuid,
}
"""Formats without a schema, which `auto` does not try: any bytes could be one of them."""


class Decoder(Protocol):
    """Decoder of the keys or the values of one topic."""

    @property
    def is_spent(self) -> bool:
        """Whether it decodes no more, because the page has taken its time."""

    async def decode(self, data: bytes) -> Decoded | None:
        """None if there is no schema for these bytes. UNDECODABLE says why they cannot be decoded."""


@dataclass(frozen=True, slots=True)
class ShownBytes:
    """A key, a value or the value of a header."""

    format: Literal["null", Form]
    text: str
    size_bytes: int
    is_cut: bool = False
    problem: str = ""
    """Why the format that was asked for does not fit."""
    schema: str = ""
    """Name of the schema that decoded the bytes."""
    schema_id: int | None = None
    """Id of that schema in the registry."""


NULL: Final = ShownBytes("null", "null", 0)


async def show(
    data: bytes | None, wanted: Format, decoder: Decoder | None, *, is_preview: bool
) -> ShownBytes:
    """The bytes in this format; with `auto` in the first that fits."""
    if data is None:
        return NULL
    problem = ""
    if wanted in ("auto", "avro", "protobuf") and decoder is not None:
        try:
            found = await decoder.decode(data)
            if found is not None and wanted in ("auto", found.kind):
                shown = await _beside(
                    data, partial(_as_json, found.value, found.kind, data, is_preview=is_preview)
                )
                return replace(shown, schema=found.schema, schema_id=found.schema_id)
        except Undecodable as error:
            problem = str(error)
    if wanted == "avro" and not problem:
        problem = "no schema is known for these bytes: Avro needs a schema registry that has it"
    if wanted == "protobuf":
        try:
            shown = await _beside(data, partial(_as_wire, data, is_preview=is_preview))
            return replace(shown, problem=problem)
        except Undecodable as error:
            problem = problem or str(error)
    shown = await _beside(data, partial(_show_plain, data, wanted, is_preview=is_preview))
    return replace(shown, problem=problem) if problem else shown


async def _beside(data: bytes, work: Callable[[], ShownBytes]) -> ShownBytes:
    """Do the work for a large value in a thread, so that other pages go on."""
    return work() if len(data) <= INLINE_BYTES_MAX else await asyncio.to_thread(work)


def _as_wire(data: bytes, *, is_preview: bool) -> ShownBytes:
    """Fields of Protobuf by number and type."""
    text = protoscope(without_frame(data))
    if is_preview:
        text = " ".join(text[: PREVIEW_CHARACTERS * 4].split())
    limit = PREVIEW_CHARACTERS if is_preview else SHOWN_BYTES_MAX
    return ShownBytes("protobuf", _visible(text[:limit]), len(data), len(text) > limit)


def _show_plain(  # noqa: PLR0911 - a case for each format
    data: bytes, wanted: Format, *, is_preview: bool
) -> ShownBytes:
    if wanted in ("auto", "json", "avro", "protobuf"):
        try:
            return _as_json(_loads(data, is_preview=is_preview), "json", data, is_preview=is_preview)
        except Undecodable as error:
            if wanted == "json":
                shown = _as_text_or_hex(data, is_preview=is_preview)
                return ShownBytes(shown.format, shown.text, len(data), shown.is_cut, str(error))
    match wanted:
        case "hex":
            return _as_hex(data, is_preview=is_preview)
        case "base64":
            return _as_base64(data, is_preview=is_preview)
        case "text":
            return _as_text(data, data[:SHOWN_BYTES_MAX].decode(errors="replace"), is_preview=is_preview)
        case "msgpack" | "cbor" | "integer" | "float" | "uuid":
            return _read(data, wanted, is_preview=is_preview)
    return _as_text_or_hex(data, is_preview=is_preview)


def _read(data: bytes, wanted: Form, *, is_preview: bool) -> ShownBytes:
    try:
        return _as_json(_READERS[wanted](data), wanted, data, is_preview=is_preview)
    except Undecodable as error:
        return replace(_as_text_or_hex(data, is_preview=is_preview), problem=str(error))


def _as_text_or_hex(data: bytes, *, is_preview: bool) -> ShownBytes:
    try:
        # The cut may split a character, so a few bytes of the end may be missing.
        text = data[:SHOWN_BYTES_MAX].decode()
    except UnicodeDecodeError as error:
        if len(data) <= SHOWN_BYTES_MAX or error.start < SHOWN_BYTES_MAX - 4:
            return _as_hex(data, is_preview=is_preview)
        text = data[: error.start].decode()
    unseen = sum(1 for _ in _UNSEEN.finditer(text[:2_000]))
    if unseen > max(len(text[:2_000]) // 10, 1):
        return _as_hex(data, is_preview=is_preview)
    return _as_text(data, text, is_preview=is_preview)


def _as_text(data: bytes, text: str, *, is_preview: bool) -> ShownBytes:
    limit = PREVIEW_CHARACTERS if is_preview else SHOWN_BYTES_MAX
    is_cut = len(text) > limit or len(data) > SHOWN_BYTES_MAX
    return ShownBytes("text", _visible(text[:limit]), len(data), is_cut)


def _loads(data: bytes, *, is_preview: bool) -> Any:
    if len(data) > (JSON_PREVIEW_BYTES_MAX if is_preview else JSON_BYTES_MAX):
        raise Undecodable("the value is too large to be shown as JSON")
    stripped = data[:64].lstrip()[:1]
    if not stripped or stripped not in b'{["-0123456789tfn':
        raise Undecodable("the bytes are not JSON")
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None
    except ValueError as error:
        raise Undecodable(f"the bytes are not JSON: {error}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _as_json(found: Any, kind: Form, data: bytes, *, is_preview: bool) -> ShownBytes:
    limit = PREVIEW_CHARACTERS if is_preview else SHOWN_BYTES_MAX
    try:
        text = json_text(found, limit, indent=None if is_preview else 2, default=_other)
    except (RecursionError, ValueError, TypeError) as error:
        raise Undecodable(f"the value cannot be shown as JSON: {error}") from None
    return ShownBytes(kind, _visible(text[:limit]), len(data), len(text) > limit)


def _other(value: Any) -> str:
    """Values that JSON lacks."""
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def _as_hex(data: bytes, *, is_preview: bool) -> ShownBytes:
    if is_preview:
        part = data[: PREVIEW_CHARACTERS // 3]
        return ShownBytes("hex", part.hex(" "), len(data), len(part) < len(data))
    part = data[: SHOWN_BYTES_MAX // 4]
    lines = [_hex_line(part[at : at + HEX_LINE], at) for at in range(0, len(part), HEX_LINE)]
    return ShownBytes("hex", "\n".join(lines), len(data), len(part) < len(data))


def _as_base64(data: bytes, *, is_preview: bool) -> ShownBytes:
    part = data[: (PREVIEW_CHARACTERS if is_preview else SHOWN_BYTES_MAX) // 4 * 3]
    return ShownBytes("base64", base64.b64encode(part).decode(), len(data), len(part) < len(data))


def _hex_line(part: bytes, at: int) -> str:
    seen = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<{HEX_LINE * 3}} {seen}"


def _visible(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible_text(text: str) -> str:
    """Text of others, with the code points of characters that hide or reorder it."""
    return _visible(text)


def visible_name(name: str) -> str:
    """Name of a header, which may hold any bytes."""
    return _visible(name.encode("utf-8", "backslashreplace").decode("utf-8", "backslashreplace"))[:200]
