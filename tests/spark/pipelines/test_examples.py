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
    from barnabas.pipelines.validation import load
    from barnabas.pipelines.yaml_source import read_yaml

    located = read_yaml((EXAMPLES / name).read_text(), name)
    load(located)
    document: dict[str, Any] = located.document
    return {**document, "trigger": "available_now"}


def test_clicks_become_parquet_and_counts(
    run_spec: RunSpec, bootstrap: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    produce(bootstrap, "clicks", [CLICK, CLICK, {**CLICK, "at": "2024-05-01T12:00:00Z"}, b"{broken"])
    run_spec(example("clean_clicks.yaml"))
    rows = spark.read.parquet(str(tmp_path / "clicks")).collect()
    assert [(row["user"], str(row["day"])) for row in rows] == [("", "2024-05-01")] * 2
    assert [each.value for each in consume(bootstrap, "clicks-dead")] == [b"{broken"]
    run_spec(example("page_counts.yaml"))
    (count,) = consume(bootstrap, "page-counts")
    assert (count.key, count.json["clicks"], count.json["users"]) == (b"/", 2, 1)


def test_orders_and_customers_go_to_and_from_postgres(
    run_spec: RunSpec, bootstrap: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_URL", postgres.url)
    monkeypatch.setenv("SHOP_PASSWORD", "not needed here")
    order = {"id": 1, "status": "new", "customer": {"name": "ada", "city": "Prague"}, "cents": 1250}
    produce(bootstrap, "orders", [order, {**order, "status": "paid"}])
    run_spec(example("orders_to_postgres.yaml"))
    assert postgres.query("SELECT id, status, city, amount FROM orders") == [(1, "paid", "Prague", 12.5)]
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
    assert {"id": 2, "customer": "ada", "segment": "gold", "amount": 50.0} in found
    assert 3 not in [row["id"] for row in found]
