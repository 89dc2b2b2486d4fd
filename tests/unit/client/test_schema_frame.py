"""The framing with which records name their schema."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.extensions.schema_frame import UnframedRecord, frame, is_framed, place_of, unframe


@given(st.integers(0, 2**32 - 1), st.binary())
def test_a_frame_names_its_schema(schema_id: int, payload: bytes) -> None:
    framed = frame(schema_id, payload)
    assert is_framed(framed)
    assert unframe(framed) == (schema_id, payload)


def test_the_bytes_are_those_of_confluent() -> None:
    assert frame(258, b"x") == b"\x00\x00\x00\x01\x02x"


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x01x", b"text"])
def test_other_bytes_have_no_frame(data: bytes) -> None:
    assert not is_framed(data)
    with pytest.raises(UnframedRecord):
        unframe(data)


@pytest.mark.parametrize(
    ("payload", "places", "message"),
    [
        (b"\x00abc", [0], b"abc"),
        (b"\x02\x00abc", [0], b"abc"),
        (b"\x04\x02\x00abc", [1, 0], b"abc"),
        (b"\x02\x80\x02", [128], b""),
    ],
)
def test_the_place_of_a_message(payload: bytes, places: list[int], message: bytes) -> None:
    assert place_of(payload) == (places, message)


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x01", b"\x80" * 20, b"\xfe\xff\x03" + bytes(100)])
def test_a_place_that_is_none(payload: bytes) -> None:
    with pytest.raises(UnframedRecord):
        place_of(payload)
