"""Fields of forms: as the standard library reads them, in less memory."""

from __future__ import annotations

import tracemalloc
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.network.http.forms import FIELDS_MAX, PIECE_BYTES, form_fields


@given(st.binary(max_size=200))
@example(b"a=1&b=%C3%A9+%2B&c&=d&&e==f")
@example(b"a=%zz%4&%=%")
@example(b"a=%ff")
@example(b"a=" + b"x" * (PIECE_BYTES - 3) + b"%C3%A9")
@example(b"a=" + b"x" * (PIECE_BYTES - 1) + b"%C3%A9" * PIECE_BYTES)
def test_fields_are_those_of_the_standard_library(body: bytes) -> None:
    try:
        expected = parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
    except ValueError:
        with pytest.raises(UnicodeDecodeError):
            form_fields(body)
    else:
        assert form_fields(body) == expected


def test_every_field_may_be_escaped() -> None:
    fields = [("name", "é & = + %" * 5_000), ("x", "")]
    assert form_fields(urlencode(fields).encode()) == fields


def test_more_fields_than_any_form_has_are_refused() -> None:
    assert len(form_fields(b"&".join([b"a=1"] * FIELDS_MAX))) == FIELDS_MAX
    with pytest.raises(ValueError, match="fields"):
        form_fields(b"&".join([b"a=1"] * (FIELDS_MAX + 1)))


def test_escapes_take_little_memory() -> None:
    body = b"%61" * 300_000
    tracemalloc.start()
    try:
        assert form_fields(body) == [("a" * 300_000, "")]
        assert tracemalloc.get_traced_memory()[1] < 6 * len(body)
    finally:
        tracemalloc.stop()
