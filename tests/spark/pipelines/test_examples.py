"""Every example is run, as it stands, on real data; only its trigger is made to end."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.spark.pipelines.conftest import RunSpec
from tests.support.mariadb import run_mariadb
from tests.support.postgres import Postgres, run_postgres
from tests.support.receiver import Answer, run_receiver
from tests.support.table_reading import read_rows
from tests.support.topics import consume, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
CLICK = {"user": "ada", "page": "/", "ms": 5, "at": "2024-05-01T10:00:00Z"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


def example(name: str) -> dict[str, Any]:
    from barnabas.pipelines.spec.validation import load
    from barnabas.pipelines.spec.yaml_source import read_yaml

    located = read_yaml((EXAMPLES / name).read_text(), name)
    load(located)
    document: dict[str, Any] = located.document
    return {**document, "trigger": "available_now"}


def test_clicks_become_parquet_and_counts(
    run_spec: RunSpec, bootstrap: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    clicks = [{**CLICK, "user": user} for user in ("ada", "bob", "cyd", "dan")]
    again, later = clicks[0], {**CLICK, "at": "2024-05-02T12:00:00Z"}
    produce(bootstrap, "clicks", [*clicks, again, later, {**CLICK, "page": None}, b"{broken"])
    run_spec(example("clean_clicks.yaml"))
    rows = spark.read.parquet(str(tmp_path / "clicks")).collect()
    # A row for every user's click, once, without a user name.
    assert sorted((row["user"], row["page"], str(row["day"])) for row in rows) == [
        *[("", "/", "2024-05-01")] * 4,
        ("", "/", "2024-05-02"),
    ]
    assert [each.value for each in consume(bootstrap, "clicks-dead")] == [b"{broken"]
    run_spec(example("page_counts.yaml"))
    # Only windows that no click can come into any more: those of the first of May.
    found = {each.key: each.json for each in consume(bootstrap, "page-counts")}
    assert (found[b"/"]["clicks"], found[b"/"]["users"], found[b"/"]["slowest_ms"]) == (5, 4, 5)


def test_every_example_has_a_test_here() -> None:
    tests = "".join(each.read_text() for each in Path(__file__).parent.glob("test_*.py"))
    names = [each.name for each in EXAMPLES.iterdir() if each.suffix in (".yaml", ".py")]
    assert [name for name in names if name not in tests] == []


def test_every_sink_has_an_example() -> None:
    """Also every format of a table, and every database."""
    from barnabas.pipelines.spec.options.sinks import SINKS

    found = set()
    for each in EXAMPLES.glob("*.yaml"):
        sink = example(each.name)["sink"]
        found.add((sink["type"], sink["url"] if sink["type"] == "jdbc" else sink.get("format")))
    assert {kind for kind, _ in found} == set(SINKS)
    assert {("table", "delta"), ("table", "iceberg")} <= found
    addresses = ("${env:SHOP_URL}", "${env:SHOP_MYSQL_URL}", "sqlite:${env:READINGS_FILE}")
    assert {("jdbc", each) for each in addresses} <= found


def test_what_runs_out_is_shown(
    run_spec: RunSpec, bootstrap: str, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(bootstrap, "stock", [{"item": "tea", "units": 3}, {"item": "salt", "units": 10}])
    run_spec(example("low_stock_on_console.yaml"))
    shown = capsys.readouterr().out
    assert "tea" in shown
    assert "salt" not in shown


def test_orders_and_customers_go_to_and_from_postgres(
    run_spec: RunSpec, bootstrap: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_URL", postgres.url)
    monkeypatch.setenv("SHOP_PASSWORD", "not needed here")
    order = {"id": 1, "status": "new", "customer": {"name": "ada", "city": "Prague"}, "cents": 1250}
    other = {"id": 2, "status": "new", "customer": {"name": "bob", "city": "Brno"}, "cents": 99}
    produce(bootstrap, "orders", [order, other, {**order, "status": "paid"}])
    run_spec(example("orders_to_postgres.yaml"))
    found = postgres.query("SELECT id, status, city, amount FROM orders ORDER BY id")
    assert found == [(1, "paid", "Prague", 12.5), (2, "new", "Brno", 0.99)]
    postgres.query("CREATE TABLE customers (id bigint, name text, card text)")
    postgres.query("INSERT INTO customers VALUES (7, 'ada', '4111')")
    run_spec(example("customers_from_postgres.yaml"))
    (customer,) = consume(bootstrap, "customers")
    assert (customer.key, customer.json) == (b"7", {"id": 7, "name": "ada", "origin": "shop"})


def test_customers_and_products_go_to_and_from_mysql(
    run_spec: RunSpec, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_mariadb() as mariadb:
        monkeypatch.setenv("SHOP_MYSQL_URL", mariadb.url)
        monkeypatch.setenv("SHOP_PASSWORD", "")
        mariadb.query("CREATE TABLE customers (id bigint PRIMARY KEY, name varchar(50))")
        mariadb.query("INSERT INTO customers VALUES (1, 'ada'), (2, 'bob')")
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("crm-customers", b'{"name": "cyd", "city": "Brno"}', key=b'{"id": 2}')
        producer.produce("crm-customers", None, key=b'{"id": 1}')
        assert producer.flush(30.0) == 0
        run_spec(example("customers_to_mysql.yaml"))
        assert mariadb.query("SELECT id, name, city FROM customers") == [(2, "cyd", "Brno")]
        mariadb.query("CREATE TABLE products (id bigint, name text, price decimal(8, 2))")
        mariadb.query("INSERT INTO products VALUES (1, 'tea', 2.50), (2, 'secret', NULL)")
        run_spec(example("products_from_mysql.yaml"))
    (product,) = consume(bootstrap, "products")
    assert (product.key, product.json) == (b"1", {"id": 1, "name": "tea", "price": 2.5})


def test_the_last_readings_are_in_a_file(
    run_spec: RunSpec, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "readings.db"
    monkeypatch.setenv("READINGS_FILE", str(place))
    at = "2024-05-01T10:00:00Z"
    readings = [("a", 20.5), ("b", 3.0), ("a", 21.25)]
    produce(bootstrap, "readings", [{"sensor": name, "celsius": value, "at": at} for name, value in readings])
    run_spec(example("readings_to_sqlite.yaml"))
    with closing(sqlite3.connect(place)) as connection:
        found = connection.execute("SELECT sensor, celsius, at FROM readings ORDER BY sensor").fetchall()
    moment = "2024-05-01 10:00:00.000000"
    assert found == [("a", 21.25, moment), ("b", 3.0, moment)]


def test_paid_orders_reach_a_web_service(
    run_spec: RunSpec, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_receiver() as service:
        monkeypatch.setenv("HOOK_URL", service.url)
        monkeypatch.setenv("HOOK_TOKEN", "hunter2")
        service.answer = lambda request: Answer(422, b"no id") if b'"id":10002' in request.body else Answer()
        statuses = [(10_001, "paid"), (10_002, "paid"), (10_003, "new"), (10_004, "paid")]
        produce(bootstrap, "orders", [{"id": at, "status": status, "cents": 5} for at, status in statuses])
        run_spec(example("orders_to_webhook.yaml"))
        sent = [order["id"] for each in service.taken for order in json.loads(each.body)]
    assert sorted(each for each in sent if each > 10_000) == [10_001, 10_004]
    (letter,) = consume(bootstrap, "orders-refused")
    assert letter.json["id"] == 10_002


def test_orders_are_enriched_in_python(bootstrap: str, spark: SparkSession, tmp_path: Path) -> None:
    place = importlib.util.spec_from_file_location("enrich_orders", EXAMPLES / "enrich_orders.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    (tmp_path / "segments.csv").write_text("ada,gold\n")
    made = module.pipeline(bootstrap, str(tmp_path / "segments.csv"), str(tmp_path / "state"))
    produce(
        bootstrap,
        "orders",
        [{"id": 2, "customer": "ada", "cents": 5000}, {"id": 3, "customer": "bob", "cents": 5}],
    )
    made.run(spark)
    found = [json.loads(each.value or b"") for each in consume(bootstrap, "large-orders")]
    assert [row for row in found if row["id"] in (2, 3)] == [
        {"id": 2, "customer": "ada", "segment": "gold", "amount": 50.0}
    ]


def test_orders_and_customers_become_tables(
    run_spec: RunSpec, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    order = {"id": 1, "status": "new", "cents": 1250, "at": "2024-05-01T10:00:00Z"}
    paid = {**order, "status": "paid", "at": "2024-05-02T08:00:00Z"}
    produce(bootstrap, "order-events", [order, paid, b"{broken"])
    run_spec(example("orders_to_delta.yaml"))
    found = sorted(
        (row["_offset"], row["status"], row["cents"], str(row["day"]), str(row["at"]))
        for row in read_rows("delta", tmp_path / "orders")
    )
    assert found == [
        (0, "new", 1250, "2024-05-01", "2024-05-01 10:00:00+00:00"),
        (1, "paid", 1250, "2024-05-02", "2024-05-02 08:00:00+00:00"),
    ]
    assert [each.value for each in consume(bootstrap, "order-events-dead")] == [b"{broken"]
    for key, value in (
        (b"1", {"id": 1, "name": "ada", "city": "Brno"}), (b"2", {"id": 2, "name": "bob", "city": "Prague"}),
        (b"1", {"id": 1, "name": "ada", "city": "Prague"}), (b"2", None), (b"3", {"id": 3, "name": "cyd"}),
    ):  # fmt: skip
        produce(bootstrap, "customer-changes", [value], key=key)
    run_spec(example("customers_to_iceberg.yaml"))
    customers = sorted(read_rows("iceberg", tmp_path / "customers"), key=lambda row: row["id"])
    assert customers == [
        {"id": 1, "name": "ada", "city": "Prague"},
        {"id": 3, "name": "cyd", "city": None},
    ]
