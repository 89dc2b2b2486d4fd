"""Every example is run, as it stands, on real data; only its trigger is made to end."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.postgres import Postgres, run_postgres
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
