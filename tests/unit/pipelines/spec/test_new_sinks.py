"""Options of the sinks http and mirror, and of tables whose keys come from the record."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.pipelines.spec.model import Delivery, PipelineSpec
from barnabas.pipelines.spec.options.databases import database_complaint, dialect_of, sqlite_path
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.validation import load_document

TOPIC = {"type": "topic", "topics": ["orders"], "schema": "id INT"}
HOOK = {"type": "http", "url": "https://shop.example/orders"}
TABLE = {"type": "jdbc", "url": "mysql://db/shop", "table": "t"}
RAW = {"type": "topic", "bootstrap": "east:9092", "topics": ["orders"], "format": "raw"}


def load(sink: dict[str, Any], source: dict[str, Any] | None = None, **sections: Any) -> PipelineSpec:
    return load_document({"name": "p", "source": source or TOPIC, "sink": sink, **sections})


def complaint(sink: dict[str, Any], source: dict[str, Any] | None = None, **sections: Any) -> str:
    with pytest.raises(InvalidSpec) as caught:
        load(sink, source, **sections)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "ftp://shop.example"}, "http://host/path or https://host/path"),
        ({"url": "https:///orders"}, "http://host/path"),
        ({"url": "https://shop.example/a b"}, "http://host/path"),
        ({"url": "https://{key}.example/"}, "in the host"),
        ({"url": "https://user:hunter2@shop.example/"}, "password in plain text"),
        ({"token": "hunter2"}, "secret in plain text"),
        ({"headers": {"X-Api-Key": "hunter2"}}, "X-Api-Key is a secret in plain text"),
        ({"headers": {"Content-Length": "5"}}, "which each request sets itself"),
        ({"headers": {"X-A": "a\r\nHost: b"}}, "line break"),
        ({"headers": {"X A": "a"}}, "expected a name of letters"),
        ({"batch_records": 0}, "from 1 to 10000"),
        ({"batch_records": 2, "format": "text"}, "needs format json"),
        ({"batch_records": 2, "url": "https://shop.example/{key}"}, "exclude each other"),
        ({"tombstones": "delete"}, "needs {key} in the address"),
        ({"retries": 21}, "from 0 to 20"),
        ({"max_body_bytes": -1}, "from 1 to"),
        ({"token": "${env:T}", "user": "u"}, "exclude each other"),
    ],
)
def test_a_request_that_cannot_be_right_is_refused(change: dict[str, Any], words: str) -> None:
    found = complaint({**HOOK, **change})
    assert words in found
    assert "hunter2" not in found


def test_a_web_service_gets_rows_at_least_once() -> None:
    spec = load({**HOOK, "headers": {"Authorization": "Basic ${env:PAIR}"}})
    assert spec.guarantee is Delivery.AT_LEAST_ONCE
    assert "cannot deliver exactly once" in complaint(HOOK, delivery="exactly-once")


def test_a_mirror_copies_what_it_can_keep() -> None:
    assert load({"type": "mirror"}, RAW).guarantee is Delivery.EXACTLY_ONCE
    load(
        {"type": "mirror", "prefix": "e."}, {**RAW, "bootstrap": None}, transforms=[{"filter": "value = 'x'"}]
    )
    for sink, source, words in (
        ({}, {**RAW, "format": "json", "schema": "id INT"}, "expected format: raw"),
        ({}, {**RAW, "headers": False}, "a mirror copies headers"),
        ({}, {"type": "rate"}, "a mirror copies topics, not rate"),
        ({}, {**RAW, "bootstrap": None}, "the same cluster"),
        ({"prefix": "e."}, {"type": "topic", "pattern": ".*", "format": "raw"}, "the same cluster"),
        ({"groups": "["}, RAW, "regular expression"),
    ):
        assert words in complaint({"type": "mirror", **sink}, source)
    found = complaint({"type": "mirror"}, RAW, transforms=[{"HoistField": "x"}])
    assert "expected filter, not HoistField" in found


def test_keys_of_records_need_no_column_of_the_value() -> None:
    sink = load({**TABLE, "key_from": "record_key", "key": ["region"], "delete": True}).sink
    assert (sink["key"], sink["delete"]) == (["region"], True)
    assert "there is no column 'region'" in complaint({**TABLE, "key": ["region"]})
    assert "'delete' needs mode upsert" in complaint({**TABLE, "key": ["id"], "delete": True})
    insert = {**TABLE, "mode": "insert", "key_from": "record_key", "key": ["k"]}
    assert "'delete' needs mode upsert" in complaint({**insert, "delete": True})


@pytest.mark.parametrize(
    ("url", "dialect", "path"),
    [
        ("jdbc:sqlite:shop.db", "sqlite", "shop.db"), ("sqlite:/a/b.db", "sqlite", "/a/b.db"),
        ("sqlite:///a/b.db", "sqlite", "/a/b.db"), ("jdbc:mysql://h/d", "mysql", None),
        ("mariadb://u@h:1/d?sslMode=verify-full&sslCa=/ca.pem", "mysql", None),
        ("postgres://h/d", "postgresql", None),
    ],
)  # fmt: skip
def test_addresses_name_their_dialect(url: str, dialect: str, path: str | None) -> None:
    assert dialect_of(url) == dialect
    assert database_complaint(url) is None
    assert path is None or sqlite_path(url) == path


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite:", "no path"), ("jdbc:sqlite::memory:", "no path"), ("mysql://h", "found 'mysql://…'"),
        ("mysql://h/d?sslMode=maybe", "expected sslMode=required"),
        ("mysql://h/d?useSSL=true", "expected sslMode="),
        ("shop.db", "expected postgresql://"),
    ],
)  # fmt: skip
def test_addresses_that_lead_nowhere_are_refused(url: str, words: str) -> None:
    assert words in (database_complaint(url) or "")
