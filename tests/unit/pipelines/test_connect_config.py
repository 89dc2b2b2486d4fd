from __future__ import annotations

from typing import Any

import pytest

from barnabas.pipelines.connect_config import spec_of_config
from barnabas.pipelines.spec import Tolerance
from barnabas.pipelines.validation import InvalidSpec

JDBC_SINK = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "tasks.max": "2",
    "topics": "orders,returns",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "connection.user": "shop",
    "connection.password": "${env:PGPASSWORD}",
    "table.name.format": "orders",
    "insert.mode": "upsert",
    "pk.fields": "id",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "value.schema": "id BIGINT, secret STRING",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "orders-dlq",
    "errors.deadletterqueue.context.headers.enable": "true",
    "transforms": "mask,route",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "secret",
    "transforms.mask.predicate": "isOrder",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "$1-copy",
    "predicates": "isOrder",
    "predicates.isOrder.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.isOrder.pattern": "orders",
}


def test_a_connect_configuration_of_a_sink_becomes_a_spec() -> None:
    spec = spec_of_config("orders-sink", JDBC_SINK)
    assert spec.source.type == "topic"
    assert spec.source["topics"] == ["orders", "returns"]
    assert spec.source["min_partitions"] == 2
    assert spec.source["format"] == "json"
    assert spec.sink.type == "jdbc"
    assert spec.sink["key"] == ["id"]
    assert spec.sink["password"] == "${env:PGPASSWORD}"
    assert spec.errors.tolerance is Tolerance.ALL
    assert spec.errors.dead_letter_topic == "orders-dlq"
    mask, route = spec.transforms
    assert (mask.type, mask["target"], mask["fields"]) == ("MaskField", "value", ["secret"])
    assert mask["predicate"] == "_topic RLIKE r'^(?:orders)$'"
    assert route["replacement"] == "$1-copy"


def test_a_connect_configuration_of_a_source_becomes_a_spec() -> None:
    spec = spec_of_config(
        "lines",
        {
            "connector.class": "FileStreamSource",
            "file": "in/",
            "format": "text",
            "topic": "lines",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
    )
    assert (spec.source.type, spec.source["path"], spec.source["format"]) == ("files", "in/", "text")
    assert (spec.sink["topic"], spec.sink["format"]) == ("lines", "text")


def test_between_topics_topics_is_read_and_topic_is_written() -> None:
    spec = spec_of_config(
        "copy", {"connector.class": "TopicSink", "topics": "a", "topic": "b", "value.format": "raw"}
    )
    assert spec.source["topics"] == ["a"]
    assert spec.source["format"] == "raw"
    assert spec.sink["topic"] == "b"


def test_a_whole_spec_travels_in_one_setting() -> None:
    text = "name: x\nsource: {type: rate}\nsink: {type: console}\n"
    spec = spec_of_config("x", {"connector.class": "Pipeline", "name": "x", "pipeline.spec": text})
    assert spec.source.type == "rate"


@pytest.mark.parametrize(
    ("change", "option", "words"),
    [
        ({"connector.class": "com.acme.Fancy"}, "connector.class", "there is no connector"),
        ({"transforms.mask.type": "com.acme.Magic"}, "transforms.mask.type", "there is no transform"),
        ({"value.converter": "com.acme.Converter"}, "value.converter", "there is no converter"),
        ({"pk.feilds": "id"}, "pk.feilds", "has no option"),
        ({"predicates.isOrder.type": "x.Odd"}, "predicates.isOrder.type", "there is no predicate"),
        ({"insert.mode": "replace"}, "sink.mode", "found 'replace'; expected one of upsert, insert"),
        ({"connection.password": "hunter2"}, "sink.password", "in the open"),
    ],
)
def test_what_a_configuration_gets_wrong_is_named(change: dict[str, Any], option: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of_config("orders-sink", {**JDBC_SINK, **change})
    (problem,) = caught.value.problems
    assert problem.option == option
    assert words in problem.message
