"""Bytes as people read them: the first format that fits, all of it text, all of it bounded."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.formats.bounds import Undecodable
from barnabas.console.records.decoding import (
    FORMATS,
    PREVIEW_CHARACTERS,
    SHOWN_BYTES_MAX,
    Format,
    ShownBytes,
    show,
    visible_name,
)
from barnabas.console.schemas.decoders import Decoded


async def shown(data: bytes | None, wanted: Format = "auto", *, is_preview: bool = False) -> ShownBytes:
    return await show(data, wanted, None, is_preview=is_preview)


@pytest.mark.parametrize(
    ("data", "wanted", "kind", "text"),
    [
        (None, "auto", "null", "null"),
        (b"", "auto", "text", ""),
        (b"hello", "auto", "text", "hello"),
        ('{"a": "é"}'.encode(), "auto", "json", '{\n  "a": "é"\n}'),
        (b'{"a": ', "auto", "text", '{"a": '),
        (b"12", "text", "text", "12"),
        (b"\xff\xfe", "auto", "hex", f"{0:08x}  {'ff fe':<48} .."),
        (b"\xff\xfe", "text", "text", "\ufffd\ufffd"),
        (b"NaN", "auto", "text", "NaN"),
        ("safe \u202eexe.txt".encode(), "auto", "text", "safe \\u202eexe.txt"),
    ],
)
async def test_formats(data: bytes | None, wanted: Format, kind: str, text: str) -> None:
    found = await shown(data, wanted)
    assert (found.format, found.text) == (kind, text)


@pytest.mark.parametrize(
    "data",
    [b"[" * 200_000, b'{"a":' * 50_000, b"x" * (10 << 20), b"\x00" * (10 << 20), "é".encode() * (5 << 20)],
)
@pytest.mark.parametrize("is_preview", [True, False])
async def test_what_is_shown_is_bounded(data: bytes, is_preview: bool) -> None:
    found = await shown(data, is_preview=is_preview)
    assert len(found.text) <= (PREVIEW_CHARACTERS if is_preview else 2 * SHOWN_BYTES_MAX)
    assert found.is_cut or (not is_preview and len(data) <= SHOWN_BYTES_MAX)
    assert found.size_bytes == len(data)


@given(st.binary(max_size=500))
async def test_any_bytes_are_shown(data: bytes) -> None:
    for wanted in FORMATS:
        found = await shown(data, wanted, is_preview=True)
        assert "\x00" not in found.text
        assert "\u202e" not in found.text


async def test_half_of_a_pair_is_shown_as_its_code_point() -> None:
    """JSON may name half of a character, which cannot be encoded in an answer."""
    found = await shown(b'{"a": "\\ud800"}', is_preview=True)
    assert found.text == '{"a": "\\ud800"}'
    assert found.text.encode()


async def test_a_format_that_does_not_fit_says_so() -> None:
    assert "not JSON" in (await shown(b"plain", "json")).problem
    assert "no schema is known" in (await shown(b"\x00\x00\x00\x00\x01x", "avro")).problem
    assert "not Protobuf" in (await shown(b"\x00\x00", "protobuf")).problem


class Registry:
    is_spent = False

    async def decode(self, data: bytes) -> Decoded | None:
        if data[0]:
            return None
        if data[5:] == b"bad":
            raise Undecodable("the value does not fit its schema")
        return Decoded({"name": data[5:].decode(), "raw": b"\x01"}, "avro", "avro, schema 7", 7)


async def test_framed_values_are_decoded_by_their_schema() -> None:
    found = await show(b"\x00\x00\x00\x00\x07ada", "auto", Registry(), is_preview=True)
    assert found.format == "avro"
    assert json.loads(found.text) == {"name": "ada", "raw": "01"}
    assert (found.schema, found.schema_id) == ("avro, schema 7", 7)
    assert (await show(b"plain", "auto", Registry(), is_preview=True)).format == "text"
    bad = await show(b"\x00\x00\x00\x00\x07bad", "auto", Registry(), is_preview=True)
    assert (bad.format, bad.problem) == ("hex", "the value does not fit its schema")


async def test_json_that_nests_deeply_does_not_become_a_thousand_times_as_long() -> None:
    """Each of its lines begins with two spaces for each level."""
    data = b"[" * 900 + b"0," * 200_000 + b"0" + b"]" * 900
    tracemalloc.start()
    try:
        found = await shown(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (found.format, found.is_cut) == ("json", True)
    assert len(found.text) <= SHOWN_BYTES_MAX
    assert peak_bytes < 64 << 20


async def test_a_row_of_a_large_value_shows_its_beginning() -> None:
    found = await shown(json.dumps(["é" * 100] * 5_000, ensure_ascii=False).encode(), is_preview=True)
    assert (found.format, found.is_cut) == ("text", True)
    assert found.text.startswith('["éé')


async def test_protobuf_without_a_schema_shows_its_fields() -> None:
    found = await shown(b"\x08\x96\x01\x12\x02hi", "protobuf")
    assert (found.format, found.text) == ("protobuf", '1:VARINT 150\n2:LEN {"hi"}')
    framed = await shown(b"\x00\x00\x00\x00\x09\x02\x02\x08\x05", "protobuf", is_preview=True)
    assert framed.text == "1:VARINT 5"
    hostile = await shown(b"\x0a\x05\xe2\x80\xae<b", "protobuf")
    assert "\u202e" not in hostile.text


def test_names_of_headers_are_visible() -> None:
    assert visible_name("a\x00\u202eb") == "a\\u0000\\u202eb"
    assert visible_name("\udcff") == "\\udcff"
