"""The topic setting `barnabas.table` as a pipeline."""

from __future__ import annotations

import pytest

from barnabas.config.definitions.topics import TABLE, TOPIC_KEYS
from barnabas.core.errors import InvalidConfig
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.topic_table import OF_SINK, OF_SOURCE, document_of, pipeline_of
from barnabas.pipelines.spec.validation import load_document


def test_a_setting_is_a_pipeline_from_the_topic_into_the_table() -> None:
    spec = load_document(document_of("orders", "delta:/lake/orders"))
    assert spec.name == pipeline_of("orders") == "table-orders"
    assert (spec.source["topics"], spec.source["format"]) == (["orders"], "json")
    assert (spec.sink.type, spec.sink["format"], spec.sink["path"]) == ("table", "delta", "/lake/orders")


def test_options_follow_a_question_mark() -> None:
    setting = (
        "iceberg:/lake/my orders?schema=id BIGINT, a STRUCT<b: INT>&mode=upsert&key=id,a"
        "&key_format=json&key_schema=id BIGINT&trigger=1 minute"
    )
    spec = load_document(document_of("orders", setting))
    assert spec.source["schema"] == "id BIGINT, a STRUCT<b: INT>"
    assert (spec.sink["path"], spec.sink["mode"], spec.sink["key"]) == (
        "/lake/my orders",
        "upsert",
        ["id", "a"],
    )
    assert spec.trigger.interval_ms == 60_000


def test_an_option_may_hold_any_character() -> None:
    document = document_of("t", "delta:/t?schema=%60a%26b%60 INT")
    assert document["source"]["schema"] == "`a&b` INT"


def test_every_option_is_one_of_the_spec() -> None:
    assert not OF_SOURCE & OF_SINK
    given = {"keep": "2 hours", "key": "id", "maintenance": "0", "mode": "upsert", "target_file_size": "1 MB"}
    text = "&".join(f"{name}={value}" for name, value in given.items())
    sink = load_document(document_of("t", f"delta:/t?schema=id INT&{text}")).sink
    assert (sink["keep"], sink["maintenance"], sink["target_file_size"]) == ("2 hours", 0, "1 MB")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("schem=id INT", "there is no option 'schem'; did you mean 'schema'?"),
        ("path=/etc", "there is no option 'path'"),
        ("mode", "option mode has no value"),
    ],
)
def test_a_mistake_in_the_options_is_named(options: str, reason: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        document_of("t", f"delta:/t?{options}")
    assert reason in str(refused.value)


@pytest.mark.parametrize("setting", ["", "delta", "delta:", "parquet:/t", "delta:lake/t", "delta:?mode=x"])
def test_the_broker_refuses_what_names_no_table(setting: str) -> None:
    with pytest.raises(InvalidConfig):
        TOPIC_KEYS[TABLE].parse(setting)


@pytest.mark.parametrize("setting", ["delta:/lake/t", "iceberg:/lake/my t?mode=append", "delta:s3://lake/t"])
def test_the_broker_takes_tables_on_disk_and_in_object_stores(setting: str) -> None:
    assert TOPIC_KEYS[TABLE].parse(setting) == setting
