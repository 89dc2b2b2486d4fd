"""JSON records to columns without Spark: records never merge, split or shift among each other."""

from __future__ import annotations

import pyarrow as pa
import pytest

from barnabas.pipelines.spark.formats.plain_json import ROWS_MAX, Doubtful, decode_plain, is_plain_type

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def decoded(*values: bytes | None) -> list[tuple[int | None, str | None]]:
    columns = decode_plain(pa.array(values, pa.binary()), SCHEMA)
    return list(zip(*(each.to_pylist() for each in columns), strict=True))


def test_fields_may_be_missing_and_come_in_any_order() -> None:
    assert decoded(b'{"name": "a", "id": 1}', b'{"id": 2, "more": [1]}', b"{}") == [
        (1, "a"), (2, None), (None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        (b'{"id": 1}{"id": 2}', b"{}", b'{"name": "}', b'{"}'),
        (b'{"name": "}', b'{", "id": 1}', b"{}{}"),
        (b'{"id": 1}{"id": 2}', b""),
        (b'{"id": 1}{"id": 2}', b" "),
        (b'{"id": 1}\n{"id": 2}', b"{}"),
        (b'{"a": {}', b'{"id": 1}}', b"{}{}"),
        (b'{"a": [{}', b'{}]}', b"{}{}"),
        (b"{}", None),
        (b'{"id": 1}', b"{"),
    ],
)  # fmt: skip
def test_values_that_are_not_one_object_each_are_doubtful(values: tuple[bytes | None, ...]) -> None:
    with pytest.raises(Doubtful):
        decoded(*values)


def test_fields_without_a_column_are_doubtful_for_an_inferred_schema() -> None:
    with pytest.raises(Doubtful):
        decode_plain(pa.array([b'{"id": 1, "new": 2}']), SCHEMA, has_other_fields=False)


def test_a_slice_of_many_rows_keeps_their_order() -> None:
    values = pa.array([b'{"id": %d}' % at for at in range(2 * ROWS_MAX + 7)], pa.binary())
    ids = decode_plain(values.slice(3), SCHEMA)[0]
    assert ids.to_pylist() == list(range(3, 2 * ROWS_MAX + 7))


def test_no_rows_are_no_rows() -> None:
    assert decoded() == []


@pytest.mark.parametrize(
    "kind", [pa.float32(), pa.decimal128(10, 2), pa.timestamp("us"), pa.map_(pa.string(), pa.int64()),
             pa.struct([("at", pa.timestamp("us", "UTC"))]), pa.binary(), pa.struct([])],
)  # fmt: skip
def test_types_that_both_parsers_read_differently_are_left_to_spark(kind: pa.DataType) -> None:
    assert not is_plain_type(kind)
