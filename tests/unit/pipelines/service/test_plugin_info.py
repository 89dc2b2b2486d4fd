"""Validation of Connect configurations: each error under the key that it is about, with the choices."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.pipelines.service.http.plugin_info import validate_config

FILES = {"topics": "clicks", "path": "/lake", "format": "parquet"}
MASK = {"transforms": "mask"}
LETTERS = "errors.deadletterqueue.topic.name"
JDBC = {"topics": "orders", "connection.url": "jdbc:postgresql://db/shop", "table.name.format": "orders"}


def faults(connector: str, config: dict[str, Any]) -> dict[str, list[str]]:
    found = validate_config(connector, config)
    values = [row["value"] for row in found["configs"]]
    by_name = {value["name"]: value["errors"] for value in values if value["errors"]}
    assert found["error_count"] == sum(map(len, by_name.values()))
    return by_name


def value_of(connector: str, config: dict[str, Any], name: str) -> dict[str, Any]:
    rows = validate_config(connector, config)["configs"]
    return next(row["value"] for row in rows if row["value"]["name"] == name)


@pytest.mark.parametrize(
    ("connector", "config", "key"),
    [
        ("FilesSink", {**FILES, "format": "parket"}, "format"),
        ("FilesSink", {"topics": "clicks"}, "path"),
        ("JdbcSink", {"topics": "orders", "table": "orders"}, "url"),
        (
            "FilesSink",
            {**FILES, "errors.deadletterqueue.topic.name": "a b"},
            "errors.deadletterqueue.topic.name",
        ),
        ("FilesSink", {**FILES, "errors.tolerance": "some"}, "errors.tolerance"),
        (
            "FilesSink",
            {
                **FILES,
                "transforms": "mask",
                "transforms.mask.type": "MaskField$Value",
                "transforms.mask.feilds": "a",
            },
            "transforms.mask.feilds",
        ),
        (
            "FilesSink",
            {**FILES, "transforms": "mask", "transforms.mask.type": "MaskFeild"},
            "transforms.mask.type",
        ),
        ("Pipeline", {"pipeline.spec": "source: {type: topic, topics: a}"}, "pipeline.spec"),
    ],
)
def test_an_error_is_under_the_key_that_it_is_about(connector: str, config: dict[str, Any], key: str) -> None:
    assert key in faults(connector, config), faults(connector, config)


def test_what_may_be_chosen_is_recommended() -> None:
    assert "parquet" in value_of("FilesSink", FILES, "format")["recommended_values"]
    assert value_of("JdbcSink", JDBC, "create")["recommended_values"] == ["true", "false"]
    assert value_of("FilesSink", FILES, "path")["recommended_values"] == []


def test_a_refused_key_beside_the_options_has_its_choices() -> None:
    tolerant = {**FILES, "errors.tolerance": "some", "delivery": "twice"}
    assert value_of("FilesSink", tolerant, "errors.tolerance")["recommended_values"] == ["none", "all"]
    assert "exactly-once" in value_of("FilesSink", tolerant, "delivery")["recommended_values"]
    mask = {**FILES, "transforms": "mask", "transforms.mask.type": "MaskFeild"}
    assert "MaskField" in value_of("FilesSink", mask, "transforms.mask.type")["recommended_values"]


def test_a_value_under_a_name_of_connect_is_shown() -> None:
    assert value_of("JdbcSink", JDBC, "url")["value"] == "jdbc:postgresql://db/shop"
