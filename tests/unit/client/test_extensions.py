"""Extension points of the client: serializers, interceptors, metrics, records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.extensions.client_metrics import ClientMetrics
from barnabas.client.extensions.interceptors import (
    ConsumerInterceptor,
    ConsumerInterceptors,
    ProducerInterceptor,
    ProducerInterceptors,
)
from barnabas.client.extensions.records import Header, ProducerRecord, Record, RecordMetadata, header_pairs
from barnabas.client.extensions.serializers import SerializationError, deserializer_of, serializer_of
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import TopicPartition


class Registry:
    """Serializer that adds a header, as a schema registry's does."""

    def serialize(self, topic: str, value: int | None, headers: list[Header]) -> bytes | None:
        headers.append(("schema", topic.encode()))
        return None if value is None else bytes([value])

    def deserialize(self, topic: str, data: bytes | None, headers: Sequence[Header]) -> int | None:
        return None if data is None else data[0] + len(headers)


@pytest.mark.parametrize(
    ("setting", "value", "data"),
    [
        ("string", "é", "é".encode()),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        (lambda v: v * 2, b"a", b"aa"),
    ],
)
def test_a_serializer_comes_by_name_or_as_a_function(setting: Any, value: Any, data: bytes) -> None:
    serializer = serializer_of(setting, "value.serializer")
    assert serializer is not None
    assert serializer.serialize("orders", value, []) == data
    assert serializer.serialize("orders", None, []) is None


@pytest.mark.parametrize(
    ("setting", "data", "value"),
    [("string", "é".encode(), "é"), ("json", b'{"a":1}', {"a": 1}), (len, b"abc", 3)],
)
def test_a_deserializer_comes_by_name_or_as_a_function(setting: Any, data: bytes, value: Any) -> None:
    deserializer = deserializer_of(setting, "value.deserializer")
    assert deserializer is not None
    assert deserializer.deserialize("orders", data, ()) == value
    assert deserializer.deserialize("orders", None, ()) is None


def test_bytes_need_no_serializer() -> None:
    assert serializer_of(None, "key.serializer") is serializer_of("bytes", "key.serializer") is None
    assert deserializer_of(None, "key.deserializer") is deserializer_of("bytes", "key.deserializer") is None


def test_an_object_sees_topic_and_headers() -> None:
    serializer, deserializer = serializer_of(Registry(), "k"), deserializer_of(Registry(), "k")
    assert serializer is not None
    assert deserializer is not None
    headers: list[Header] = []
    assert serializer.serialize("orders", 7, headers) == b"\7"
    assert headers == [("schema", b"orders")]
    assert deserializer.deserialize("orders", b"\7", headers) == 8


@pytest.mark.parametrize("setting", ["avro", 7])
def test_an_unknown_form_is_named(setting: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"key\.serializer"):
        serializer_of(setting, "key.serializer")
    with pytest.raises(InvalidConfig, match=r"key\.deserializer"):
        deserializer_of(setting, "key.deserializer")


def test_a_value_of_another_type_is_named() -> None:
    text, as_json = serializer_of("string", "k"), serializer_of("json", "k")
    assert text is not None
    assert as_json is not None
    with pytest.raises(SerializationError, match="int"):
        text.serialize("orders", 7, [])
    with pytest.raises(SerializationError, match="JSON"):
        as_json.serialize("orders", object(), [])
    for form in ("string", "json"):
        deserializer = deserializer_of(form, "k")
        assert deserializer is not None
        with pytest.raises(SerializationError, match="bytes"):
            deserializer.deserialize("orders", b"\xff", ())


def test_producer_interceptors_run_in_order_and_a_broken_one_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[tuple[RecordMetadata | None, Exception | None]] = []

    class Append(ProducerInterceptor):
        def __init__(self, mark: bytes) -> None:
            self.mark = mark

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(value=record.value + self.mark)

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            seen.append((metadata, error))

    class Broken(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise RuntimeError("no")

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
            raise RuntimeError("no")

    chain = ProducerInterceptors([Append(b"1"), Broken(), Append(b"2")])
    assert chain
    assert not ProducerInterceptors([])
    with caplog.at_level(logging.WARNING):
        assert chain.on_send(ProducerRecord("orders", b"v")).value == b"v12"
        chain.on_outcome(ProducerRecord("orders"), None, ValueError())
    assert len(seen) == 2
    assert "Broken" in caplog.text


def test_consumer_interceptors_run_in_order_and_a_broken_one_stops_nothing() -> None:
    committed: list[Any] = []

    class Halve(ConsumerInterceptor):
        def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
            return records[::2]

        def on_commit(self, offsets: Any) -> None:
            committed.append(offsets)

    class Broken(ConsumerInterceptor):
        def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
            raise RuntimeError("no")

        def on_commit(self, offsets: Any) -> None:
            raise RuntimeError("no")

    chain = ConsumerInterceptors([Broken(), Halve(), ConsumerInterceptor()])
    records = [Record("orders", 0, offset, 0, None, b"v") for offset in range(4)]
    assert [each.offset for each in chain.on_consume(records)] == [0, 2]
    chain.on_commit({TopicPartition("orders", 0): 4})
    assert committed == [{TopicPartition("orders", 0): 4}]


def test_headers_are_pairs_of_a_name_and_bytes() -> None:
    assert header_pairs(None) == ()
    assert header_pairs({"a": "é", "b": None}) == [("a", "é".encode()), ("b", None)]
    assert header_pairs([("a", b"1"), ("a", b"2")]) == [("a", b"1"), ("a", b"2")]
    record = Record("orders", 3, 7, 0, b"k", b"v", headers=(("a", b"1"), ("a", b"2")))
    assert record.header("a") == b"2"
    assert record.header("b") is None
    assert record.topic_partition == RecordMetadata("orders", 3, 7, 0).topic_partition


def test_metrics_have_a_snapshot_and_a_page() -> None:
    metrics = ClientMetrics()
    metrics.registry.counter("producer_record_send_total", "Records.", topic="orders").value += 3
    metrics.registry.gauge("producer_buffer_available_bytes", "Room.", lambda: 7)
    metrics.registry.histogram("producer_request_latency_ms", "Latency.").observe(2.0)
    assert metrics.snapshot() == {
        "producer_record_send_total{topic=orders}": 3,
        "producer_buffer_available_bytes": 7,
        "producer_request_latency_ms_count": 1,
        "producer_request_latency_ms_sum": 2.0,
    }
    assert 'producer_record_send_total{topic="orders"} 3' in metrics.prometheus()


@pytest.mark.parametrize(
    "headers", [[(b"name", b"v")], [("name", ["v"])], [("name", 5)], {"name": 5}, [("name",)], ["name"]]
)
def test_a_header_of_another_type_is_refused(headers: Any) -> None:
    with pytest.raises(TypeError, match="header"):
        header_pairs(headers)
