"""The decoder without Spark: what it decodes at all, it decodes as Spark's decoder does."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.pipelines.spark.formats.plain_json import Doubtful, decode_plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "id BIGINT, small INT, ratio DOUBLE, is_new BOOLEAN, name STRING, at TIMESTAMP, day DATE,"
    " place STRUCT<x: BIGINT, tags: ARRAY<STRING>>, numbers ARRAY<DOUBLE>"
)
NUMBERS = {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}
PLAIN = [
    b'{"id": 7, "small": -3, "ratio": 2.5, "is_new": true, "name": "Ada", "at": "2026-05-01T10:00:00Z"}',
    b'{"day": "2026-05-01", "place": {"x": 1, "tags": ["a", null]}, "numbers": [1, 2.5, null]}',
    b"{}",
    b'{"id":-9223372036854775808,"small":2147483647,"ratio":5e-324,"name":"\\u00e9\\ud83d\\ude00\\n"}',
    b'{"at": "1969-12-31T23:59:59.000001+05:30", "day": "1582-10-14", "place": null, "numbers": []}',
    b'{"ratio": 12345678901234567890, "other": {"deep": [1, {"er": null}]}, "name": ""}',
    b'{ "name" : "NaN, Infosys", "id" : 0 , "ratio": 0.1e1 }',
    b'{"ratio": 1.7976931348623157e308, "name": "\\u0000\x7f\\/\\"}{"}',
]
STRANGE = [
    b"", b"null", b"[]", b"1", b" {}", b"{} ", b"{}{}", b'{"id": 1} {"id": 2}', b'{"id": 1}\n{"id": 2}',
    b'{"id": 1', b'{"name": "a\nb"}', b'{"name": "\xff"}', b'{"name": "\xed\xa0\x80"}',
    b'{"name": "\\ud800"}', b'{"other": "\\udc00"}', b'{"id": 1, "id": 2}', b'{"other": 1, "other": 2}',
    b'{"id": 1.0}', b'{"id": 1e2}', b'{"id": "1"}', b'{"id": true}', b'{"id": 9223372036854775808}',
    b'{"small": 2147483648}', b'{"ratio": NaN}', b'{"ratio": -Infinity}', b'{"other": Inf}',
    b'{"other": -NaN}', b'{"other": [Infinity]}', b'{"ratio": -0}', b'{"ratio": -0.0}',
    b'{"numbers": [-0.0]}', b'{"ratio": 1e400}', b'{"ratio": 1.7976931348623159e308}',
    b'{"ratio": "1"}', b'{"is_new": "true"}',
    b'{"is_new": 1}', b'{"name": 5}', b'{"name": {"a": 1}}', b'{"name": [1]}', b'{"at": "2026-05-01"}',
    b'{"at": "2026-05-01 10:00:00"}', b'{"at": 5}', b'{"at": "2026-05-01T10:00:00"}',
    b'{"at": "2026-05-01T10:00:00.1234567Z"}', b'{"at": "2026-02-30T10:00:00Z"}',
    b'{"at": "2026-05-01T24:00:00Z"}', b'{"at": "2026-05-01T10:00:60Z"}', b'{"at": "0000-05-01T10:00:00Z"}',
    b'{"at": "2026-05-01T10:00:00+19:00"}', b'{"at": "2026-05-01T10:00:00+0530"}', b'{"at": ""}',
    b'{"day": "2026-5-1"}', b'{"day": "2026-02-29"}', b'{"day": "2026-05-01T00:00:00Z"}', b'{"day": 1}',
    b'{"place": {}}', b'{"place": []}', b'{"place": {"x": "1"}}', b'{"place": {"x": 1, "y": 2}}',
    b'{"place": {"tags": "a"}}', b'{"numbers": [1, "2"]}', b'{"numbers": {}}', b"{'id': 1}",
    b'{"id": 1,}', b'{"id": 01}', b'{"id": +1}', b'{"ratio": .5}', b'{"ratio": 1.}', b'{"id": 1 /* c */}',
    b"\xef\xbb\xbf{}", b'{"name": "\\q"}', b'{"name": "\t"}', b'{"ID": 1}', b'{"": 1}', b'{"id": nul}',
    b'{"other": ' + b"[" * 2_000 + b"]" * 2_000 + b"}", b'{"other": ' + b"1" * 1_500 + b"}",
    b'{"other": ' + b"[" * 600 + b"]" * 600 + b"}", b'{"ratio": 0.' + b"1" * 1_500 + b"}",
    b'{"' + b"n" * 60_000 + b'": 1}', b'{"name": "' + b"12" * 2_000 + b'"}',
]  # fmt: skip


def mutated(seed: int, count: int) -> list[bytes]:
    """Plain values with a few bytes changed, removed, or taken from another value."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        value = bytearray(chance.choice(PLAIN + STRANGE[:60]))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(value) + 1)
            match chance.randrange(4):
                case 0:
                    value[at : at + 1] = bytes([chance.choice(b'{}[]":,0123456789.eE-+\\unaftINT \n\xc3')])
                case 1:
                    del value[at : at + chance.randint(1, 4)]
                case 2:
                    value[at:at] = bytes(value[at : at + chance.randint(1, 8)])
                case _:
                    other = chance.choice(PLAIN)
                    begin = chance.randrange(len(other))
                    value[at:at] = other[begin : begin + chance.randint(1, 12)]
        found.append(bytes(value))
    return found


def decode_with_spark(spark: SparkSession, values: list[bytes], *, is_inferred: bool) -> list[Any]:
    """A row, or None for a value with an error."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    from barnabas.pipelines.spark.formats.decoding import struct_of
    from barnabas.pipelines.spark.formats.text import text_decoder

    records = spark.createDataFrame([(at, value) for at, value in enumerate(values)], "at INT, value BINARY")
    decoded = text_decoder(struct_of(DDL), "JSON", {}, is_inferred=is_inferred)(F.col("value"))
    is_null = F.lit(False) if decoded.is_null is None else decoded.is_null
    # Spark reads moments that Python does not have.
    numbers = decoded.value.withField("at", F.unix_micros(decoded.value["at"]))
    numbers = numbers.withField("day", F.unix_date(decoded.value["day"]))
    rows = (
        records.select("at", numbers.alias("v"), decoded.error.alias("e"), is_null.alias("n"))
        .orderBy("at").toArrow().to_pylist()
    )  # fmt: skip
    return [None if row["e"] is not None or row["n"] else row["v"] for row in rows]


def decode_alone(value: bytes, schema: pa.Schema, *, has_other_fields: bool) -> dict[str, Any] | None:
    try:
        columns = decode_plain(pa.array([value], pa.binary()), schema, has_other_fields=has_other_fields)
    except Doubtful:
        return None
    columns = [each.cast(NUMBERS.get(each.type, each.type)) for each in columns]
    return {name: column[0].as_py() for name, column in zip(schema.names, columns, strict=True)}


@pytest.mark.parametrize("is_inferred", [False, True])
def test_a_value_is_decoded_as_spark_does_or_left_to_spark(spark: SparkSession, is_inferred: bool) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from barnabas.pipelines.spark.formats.decoding import struct_of
    from barnabas.pipelines.tables.schemas import plain

    schema = pa.schema(
        [(each.name, plain(each.type)) for each in to_arrow_schema(struct_of(DDL), timezone="UTC")]
    )
    values = [*PLAIN, *STRANGE, *mutated(seed=30 + is_inferred, count=4_000)]
    expected = decode_with_spark(spark, values, is_inferred=is_inferred)
    plain_values = 0
    for value, row in zip(values, expected, strict=True):
        found = decode_alone(value, schema, has_other_fields=not is_inferred)
        if found is not None:
            assert row is not None, value
            assert json.dumps(found) == json.dumps(row), value
            plain_values += 1
    assert plain_values > (40 if is_inferred else 200), "most values are left to Spark"
