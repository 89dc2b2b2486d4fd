"""Hypothesis strategies for any message, made from its declaration.

Values sit on the edges of the codecs and beyond: a string of 32,767 bytes and one more, half of a surrogate
pair, numbers that their field has no room for. A message of these is either refused or read back as it was.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.protocol.schema.declarations import FRESH, Field, Kind
from barnabas.protocol.schema.message import Message

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LONGEST = 0x7FFF

TEXTS = st.one_of(
    st.sampled_from(
        (
            *("", "a", "topic-1", "Käfer", "🐞", "\0", "x" * 127, "y" * 128, "ß" * 16_384),
            *(
                "l" * LONGEST,
                "m" * (LONGEST + 1),
                "\ufffd" * LONGEST,
                "\ud800",
                "a b",
                "a\nb",
                ":",
                "<default>",
            ),
        )
    ),
    st.text(max_size=20),
)
BLOBS = st.sampled_from((b"", b"\0", b"b" * 127, b"c" * 5_000)) | st.binary(max_size=40)
UUIDS = st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16).map(Uuid)


def numbers(bits: int) -> st.SearchStrategy[int]:
    high = 1 << (bits - 1)
    return st.sampled_from((0, 1, -1, high - 1, -high, high, -high - 1)) | st.integers(-high, high - 1)


@cache
def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    return st.builds(
        cls,
        **{
            field.name: _values(field, version)
            for field in cls.__schema__.fields
            if version in field.versions
        },
    )


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_kind(field.kind, version)
    if field.kind.message is not None and field.tag is not None and version not in field.nullable:
        values = values.map(_unless_default)
    if version in field.nullable:
        values = values | st.none()
    return values | st.just(field.default) if field.default is not FRESH else values


def _unless_default(message: Message) -> Message | None:
    """A tagged struct of nothing but defaults is not written, and means the same as none."""
    return None if message == type(message)() else message


def _of_kind(kind: Kind, version: int) -> st.SearchStrategy[Any]:
    if kind.element is not None:
        return st.lists(_of_kind(kind.element, version), max_size=3)
    if kind.message is not None:
        assert issubclass(kind.message, Message)
        return messages(kind.message, version)
    if kind.name in BITS:
        return numbers(BITS[kind.name])
    if kind.name == "uint16":
        return st.sampled_from((0, 1, 0xFFFF, 0x10000, -1))
    scalars: dict[str, st.SearchStrategy[Any]] = {
        "string": TEXTS,
        "bytes": BLOBS,
        "records": BLOBS,
        "uuid": UUIDS,
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
    }
    return scalars[kind.name]
