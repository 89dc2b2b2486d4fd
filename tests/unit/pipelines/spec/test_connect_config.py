from __future__ import annotations

from typing import Any

import pytest

from barnabas.pipelines.spec.connect.config import spec_of_config
from barnabas.pipelines.spec.model import Tolerance
from barnabas.pipelines.spec.problems import InvalidSpec

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
            "connector.class": "FilesSource",
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


CONFLUENT_SINK = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
    "tasks.max": "1",
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "connection.user": "shop",
    "connection.password": "${env:PGPASSWORD}",
    "auto.create": "true",
    "auto.evolve": "false",
    "insert.mode": "upsert",
    "pk.mode": "record_value",
    "pk.fields": "id",
    "table.name.format": "shop_${topic}",
    "delete.enabled": "false",
    "batch.size": "3000",
    "max.retries": "10",
    "dialect.name": "PostgreSqlDatabaseDialect",
    "value.schema": "id BIGINT",
}
CONFLUENT_SOURCE = {
    "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "connection.url": "jdbc:postgresql://db:5432/shop",
    "mode": "incrementing",
    "incrementing.column.name": "id",
    "table.whitelist": "public.orders",
    "topic.prefix": "pg-",
    "poll.interval.ms": "5000",
    "validate.non.null": "false",
    "batch.max.rows": "100",
}


def test_confluents_jdbc_names_work_as_people_have_them() -> None:
    sink = spec_of_config("s", CONFLUENT_SINK).sink
    assert (sink["table"], sink["mode"], sink["key"], sink["create"]) == (
        "shop_orders",
        "upsert",
        ["id"],
        True,
    )
    plain = {
        k: v
        for k, v in CONFLUENT_SINK.items()
        if k.startswith(("connector", "connection", "topics", "value"))
    }
    sink = spec_of_config("s", plain).sink  # what Confluent's connector does without a word
    assert (sink["table"], sink["mode"], sink["create"]) == ("orders", "insert", False)
    spec = spec_of_config("s", CONFLUENT_SOURCE)
    assert (spec.source["table"], spec.source["column"], spec.source["max_rows_per_trigger"]) == (
        "public.orders", "id", 100,
    )  # fmt: skip
    assert (spec.sink["topic"], spec.trigger.interval_ms) == ("pg-orders", 5_000)


def test_keys_deletes_and_new_columns_are_confluents() -> None:
    asked = {
        **CONFLUENT_SINK,
        "connection.url": "jdbc:mysql://db:3306/shop",
        "dialect.name": "MySqlDatabaseDialect",
        "auto.evolve": "true",
        "pk.mode": "record_key",
        "delete.enabled": "true",
    }
    sink = spec_of_config("s", asked).sink
    assert (sink["key_from"], sink["key"], sink["delete"], sink["evolve"]) == (
        "record_key",
        ["id"],
        True,
        True,
    )
    coordinates = {**asked, "pk.mode": "kafka", "pk.fields": "", "delete.enabled": "false"}
    sink = spec_of_config("s", coordinates).sink
    assert (sink["key_from"], sink.get("key"), sink["mode"]) == ("coordinates", None, "upsert")
    with pytest.raises(InvalidSpec, match="'delete' needs mode upsert and key_from: record_key"):
        spec_of_config("s", {**asked, "pk.mode": "record_value"})


def test_all_that_is_not_done_here_is_named_in_one_answer() -> None:
    asked = {
        **CONFLUENT_SINK,
        "connection.url": "jdbc:oracle://root:secret@db:3306/shop",
        "pk.mode": "record_kye",
        "insert.mode": "update",
        "fields.whitelist": "a,b",
        "pk.feilds": "id",
    }
    with pytest.raises(InvalidSpec) as caught:
        spec_of_config("s", asked)
    assert sorted(problem.option for problem in caught.value.problems) == [
        "fields.whitelist", "insert.mode", "pk.feilds", "pk.mode", "sink.url",
    ]  # fmt: skip
    text = str(caught.value)
    assert "found 'oracle://…'; expected postgresql://" in text
    assert "did you mean 'pk.fields'?" in text
    assert "secret" not in text
    with pytest.raises(InvalidSpec) as caught:
        spec_of_config("s", {**CONFLUENT_SOURCE, "mode": "bulk", "table.whitelist": "a,b"})
    assert [problem.option for problem in caught.value.problems][:2] == ["mode", "table.whitelist"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            "io.confluent.connect.s3.S3SinkConnector",
            "FilesSink writes files: path s3a://<bucket>/<directory>",
        ),
        ("org.apache.kafka.connect.file.FileStreamSinkConnector", "FilesSink writes a directory of files"),
        ("JdbcSnik", "did you mean 'JdbcSink'?"),
    ],
)
def test_a_connector_is_never_silently_another(asked: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of_config("s", {"connector.class": asked, "topics": "a", "path": "out"})
    (problem,) = caught.value.problems
    assert problem.option == "connector.class"
    assert words in problem.message


@pytest.mark.parametrize(
    ("change", "option", "words"),
    [
        ({"connector.class": "com.acme.Fancy"}, "connector.class", "there is no connector"),
        ({"transforms.mask.type": "com.acme.Magic"}, "transforms.mask.type", "there is no transform"),
        ({"value.converter": "com.acme.Converter"}, "value.converter", "there is no converter"),
        ({"pk.feilds": "id"}, "pk.feilds", "has no option"),
        ({"predicates.isOrder.type": "x.Odd"}, "predicates.isOrder.type", "there is no predicate"),
        ({"insert.mode": "replace"}, "sink.mode", "found 'replace'; expected one of upsert, insert"),
        ({"connection.password": "hunter2"}, "sink.password", "in plain text"),
    ],
)
def test_what_a_configuration_gets_wrong_is_named(change: dict[str, Any], option: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec_of_config("orders-sink", {**JDBC_SINK, **change})
    (problem,) = caught.value.problems
    assert problem.option == option
    assert words in problem.message


@pytest.mark.parametrize(("given", "envelope"), [("true", "connect"), ("false", "none"), (None, "auto")])
def test_json_converter_reads_the_envelope_that_it_writes(given: str | None, envelope: str) -> None:
    """Connect's default has one; records of other producers that have none are read without."""
    config = {**JDBC_SINK, "value.converter.schemas.enable": given}
    spec = spec_of_config("orders", {key: text for key, text in config.items() if text is not None})
    assert spec.source["envelope"] == envelope
    del config["value.converter"], config["value.converter.schemas.enable"]
    assert spec_of_config("orders", config).source["envelope"] == "none"


def test_an_envelope_is_not_written() -> None:
    config = {
        "connector.class": "RateSource",
        "topic": "out",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
    }
    with pytest.raises(InvalidSpec, match="the sink writes no envelope of schema and payload"):
        spec_of_config("rate", config)
    assert (
        spec_of_config("rate", {**config, "value.converter.schemas.enable": "false"}).sink["format"] == "json"
    )
