"""Values that Spark's parsers and writers would change without a word: kept, or made dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Decode = Callable[..., list[Any]]
LACKING = (
    "the value has fields that the inferred schema lacks (late, later); give the source a 'schema',"
    " or start again with more 'samples'"
)
LATER = 1_600_000_000_123


@pytest.fixture
def decode(spark: SparkSession) -> Decode:
    """Of each value its row, or why it is a bad one."""

    def run(values: list[bytes | None], schema: str, what: str = "JSON", **options: Any) -> list[Any]:
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

        from barnabas.pipelines.spark.formats.decoding import struct_of
        from barnabas.pipelines.spark.formats.text import text_decoder

        frame = spark.createDataFrame([(value,) for value in values], "value BINARY").coalesce(1)
        found = text_decoder(struct_of(schema), what, {}, **options)(F.col("value"))
        assert found.is_null is not None
        rows = frame.select(
            found.value.alias("v"), found.error.alias("e"), found.is_null.alias("n")
        ).collect()
        return [row.e or (None if row.n else tuple(row.v)) for row in rows]

    return run


def test_bytes_that_are_not_utf8_are_no_text(decode: Decode) -> None:
    found = decode(
        [b'{"name":"caf\xe9"}', '{"name":"café"}'.encode(), b'{"name":"\\ud800x"}',
         b'{"name":"\\ud83d\\ude00"}',
         b'{"name":"\\\\ud800"}', b'{"name":"\\udc00"}'],
        "name STRING",
    )  # fmt: skip
    assert found == [
        "the value is not UTF-8", ("café",), "the value has an escape of half a character (a lone surrogate)",
        ("😀",), ("\\ud800",), "the value has an escape of half a character (a lone surrogate)",
    ]  # fmt: skip


def test_decimals_that_would_be_rounded_are_bad(decode: Decode) -> None:
    schema = "d DECIMAL(10, 2), s STRUCT<d: DECIMAL(4, 1)>, a ARRAY<DECIMAL(4, 1)>"
    found = decode(
        [b'{"d":1.239}', b'{"d":1.2300}', b'{"s":{"d":1.25}}', b'{"a":[1.5,2.55]}', b'{"a":[1.5]}'], schema
    )
    assert [each if isinstance(each, str) else "read" for each in found] == [
        "a decimal of column d does not fit decimal(10,2)", "read",
        "a decimal of column s does not fit struct<d:decimal(4,1)>",
        "a decimal of column a does not fit array<decimal(4,1)>", "read",
    ]  # fmt: skip
    assert str(found[1][0]) == "1.23"
    assert decode([b"1.239", b"1.2"], "d DECIMAL(10, 2)", "CSV")[0].startswith("a decimal of column d")


def test_decimals_in_a_map_and_of_the_longest_types_are_not_rounded_either(decode: Decode) -> None:
    bad = "a decimal of column d does not fit decimal(38,10)"
    fine = b'{"d":1234567890123456789012345678.0123456789000}'
    values = [
        fine, b'{"d":1.12345678901}', b'{"d":"1.12345678901"}', b'{"d":1e-30}', b'{"d":1.5e3}', b'{"d":7}',
        b'{"d":-0.10}', b'{"d":null}', b"{}",
    ]  # fmt: skip
    found = decode(values, "d DECIMAL(38, 10)")
    assert [each if isinstance(each, str) else str(each[0]) for each in found] == [
        "1234567890123456789012345678.0123456789", bad, bad, bad, "1500.0000000000", "7.0000000000",
        "-0.1000000000", "None", "None",
    ]  # fmt: skip
    assert decode([b'{"d":1.000000000001}'], "d DECIMAL(37, 10)") == [bad.replace("38", "37")]
    assert decode([b"1.12345678901,a", b"1.5,b"], "d DECIMAL(38, 10), s STRING", "CSV")[0] == bad
    wrapped = [b'{"schema":null,"payload":{"d":%s}}' % each for each in (b"1.12345678901", b"1.5")]
    found = decode(wrapped, "d DECIMAL(38, 10)", envelope="connect")
    assert found[0] == bad
    assert str(found[1][0]) == "1.5000000000"
    found = decode([b'{"m":{"x":1.25}}', b'{"m":{"x":1.5}}'], "m MAP<STRING, DECIMAL(4, 1)>")
    assert found[0] == "a decimal of column m does not fit map<string,decimal(4,1)>"
    assert str(found[1][0]["x"]) == "1.5"


def test_fields_that_no_sample_had_are_named(decode: Decode) -> None:
    schema = "a BIGINT, s STRUCT<x: BIGINT>, l ARRAY<STRUCT<x: BIGINT>>"
    values = [
        b'{"a":1}',
        b'{"a":1,"late":2,"later":3}',
        b'{"s":{"x":1,"y":2}}',
        b'{"l":[{"x":1},{"y":2}]}',
        b"null",
    ]
    found = decode(values, schema, is_inferred=True)
    assert [each if isinstance(each, str) else "read" for each in found[:4]] == [
        "read",
        LACKING,
        "column s has fields that the inferred schema lacks; give the source a 'schema'",
        "column l has fields that the inferred schema lacks; give the source a 'schema'",
    ]
    assert not any(isinstance(each, str) for each in decode(values[:4], schema)), (
        "a schema says what is wanted"
    )


def test_connects_envelope_is_taken_off(decode: Decode) -> None:
    wrapped = b'{"schema":{"type":"struct"},"payload":{"id":7}}'
    empty = b'{"schema":null,"payload":null}'
    assert decode([wrapped, empty, None], "id BIGINT", envelope="connect") == [(7,), None, None]
    assert decode([wrapped, b'{"id":8}'], "id BIGINT", envelope="auto") == [(7,), (8,)]
    (error,) = decode([b'{"id":8}'], "id BIGINT", envelope="connect")
    assert "value.converter.schemas.enable=false" in error


def test_what_follows_a_json_object_is_not_left_out(decode: Decode) -> None:
    values = [b'{"name":"a"} more', b'{"name":"a"}{"name":"b"}', b'{"name":"a"}\n', b'{"name":"}{"}',
              b'{"name":"\\"} {"}']  # fmt: skip
    goes_on = "the value has text after its JSON object"
    assert decode(values, "name STRING") == [goes_on, goes_on, ("a",), ("}{",), ('"} {',)]


def test_empty_text_is_no_json(decode: Decode) -> None:
    assert decode([b"", b"  "], "id BIGINT") == ["the value is empty, which is not JSON"] * 2


def test_moments_keep_their_microseconds_and_others_their_form(spark: SparkSession) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    from barnabas.pipelines.spark.formats.json_text import json_of

    frame = spark.sql("SELECT struct(timestamp'2024-01-01 00:00:00.123456Z' AS at) AS v")
    (row,) = frame.select(json_of(F.col("v"), frame.schema["v"].dataType, {})).collect()
    assert json.loads(row[0]) == {"at": "2024-01-01T00:00:00.123456Z"}
    frame = spark.sql(
        "SELECT struct(timestamp'2024-01-01 00:00:00.123Z' AS at,"
        " array(timestamp_ntz'2024-01-01 00:00:00') AS l, map('k', 1) AS m) AS v"
    )
    (row,) = frame.select(json_of(F.col("v"), frame.schema["v"].dataType, {})).collect()
    assert json.loads(row[0]) == {
        "at": "2024-01-01T00:00:00.123Z", "l": ["2024-01-01T00:00:00.000"], "m": {"k": 1},
    }  # fmt: skip
    frame = spark.sql("SELECT struct(map('k', timestamp_ntz'2024-01-01 00:00:00.000001') AS m) AS v")
    (row,) = frame.select(json_of(F.col("v"), frame.schema["v"].dataType, {})).collect()
    assert json.loads(row[0]) == {"m": {"k": "2024-01-01T00:00:00.000001"}}


def copied(source: str, out: str, **more: Any) -> dict[str, Any]:
    return {
        "name": f"copy-{out}",
        "source": {
            "type": "topic",
            "topics": source,
            "schema": "id BIGINT, name STRING",
            **more.pop("reading", {}),
        },
        "sink": {"type": "topic", "topic": out, **more.pop("writing", {})},
        **more,
    }


AVRO = json.dumps(
    {
        "type": "record",
        "name": "V",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)


def test_a_tombstone_stays_one_through_every_format(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source = new_topic()
    produce(bootstrap, source, [{"id": 1, "name": "a"}, None, b'{"id": null}'], key=b"k")
    insert = {"type": "InsertField", "static_field": "by", "static_value": "us"}
    cases: list[tuple[dict[str, Any], list[bytes | None]]] = [
        ({}, [b'{"id":1,"name":"a"}', None, b"{}"]),
        ({"transforms": [insert]}, [b'{"id":1,"name":"a","by":"us"}', None, b'{"by":"us"}']),
        ({"writing": {"format": "csv"}}, [b"1,a", None, b","]),
        ({"transforms": [{"sql": "SELECT id, name, _key, _tombstone FROM input"}]},
         [b'{"id":1,"name":"a"}', None, b"{}"]),
        ({"transforms": [{"sql": "SELECT *, _tombstone AS gone FROM input"}]},
         [b'{"id":1,"name":"a","gone":false}', b'{"gone":true}', b'{"gone":false}']),
    ]  # fmt: skip
    for more, expected in cases:
        out = new_topic()
        run_spec(copied(source, out, **more))
        found = consume(bootstrap, out)
        assert [each.value for each in found] == expected
        assert {each.key for each in found} == {b"k"}
    out = new_topic()
    whole = {"sql": "SELECT * FROM input WHERE _tombstone OR id = 1"}
    run_spec(copied(source, out, transforms=[whole], writing={"format": "avro", "avro_schema": AVRO}))
    assert [each.value for each in consume(bootstrap, out)] == [b"\x02\x02a", None]


def timestamps(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "times", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = consumer.consume(1, PATIENCE_S)
        return [message.timestamp()[1] for message in found]
    finally:
        consumer.close()


def test_records_keep_their_headers_and_timestamps_from_topic_to_topic(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source, out, bare, letters = (new_topic() for _ in range(4))
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (b'{"id":1}', b"junk"):
        producer.produce(source, value, headers=[("trace", b"t")], timestamp=LATER)
    assert producer.flush(PATIENCE_S) == 0
    errors = {"tolerance": "all"}
    run_spec(copied(source, out, errors=errors))
    assert [each.headers for each in consume(bootstrap, out)] == [{"trace": b"t"}]
    assert timestamps(bootstrap, out) == [LATER]
    run_spec(
        copied(source, bare, reading={"headers": False}, errors={**errors, "dead_letter_topic": letters})
    )
    assert [each.headers for each in consume(bootstrap, bare)] == [{}]
    (dead,) = consume(bootstrap, letters)
    assert dead.headers["trace"] == b"t"
    assert timestamps(bootstrap, letters) == [LATER]


def test_records_of_a_key_stay_in_order_however_many_tasks_are_asked_for(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source = new_topic()
    produce(bootstrap, source, [{"id": at} for at in range(2_000)], key=b"k")
    for delivery in ("at-least-once", "exactly-once"):
        out = new_topic()
        run_spec(copied(source, out, reading={"min_partitions": 8}, delivery=delivery))
        assert [each.json["id"] for each in consume(bootstrap, out)] == [*range(2_000)]


def test_a_partition_without_a_record_that_late_starts_at_its_end(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    source, out = new_topic(partitions=2), new_topic()
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, at in ((0, LATER - 10), (1, LATER + 10)):
        producer.produce(source, b'{"id":%d}' % partition, partition=partition, timestamp=at)
    assert producer.flush(PATIENCE_S) == 0
    run_spec(copied(source, out, reading={"starting_timestamp": LATER}))
    assert [each.json["id"] for each in consume(bootstrap, out)] == [1]
