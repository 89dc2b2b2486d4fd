"""Declarative pipelines in the service, and YAML pipelines exported as such; Spark's own program runs them.

An update starts two JVMs and takes a minute or more on a busy machine.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli
from barnabas.testing.broker import run_broker
from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.pipeline_service import PATIENCE_S, Service
from tests.support.spark import REPOSITORY, require_spark
from tests.support.topics import consume, produce
from tests.support.waiting import eventually

EXAMPLE = REPOSITORY / "examples" / "orders_declarative"
UPDATE = "barnabas.pipelines.spark.declarative_update"


@pytest.fixture(autouse=True)
def spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    require_spark()
    if importlib.util.find_spec("grpc_status") is None:
        pytest.skip("Spark Connect's packages are not installed (extra declarative)")
    monkeypatch.setenv("SPARK_MASTER", "local[2]")


@pytest.fixture
def own_broker() -> Iterator[str]:
    """A broker of its own: the topics of the example have names that other tests use too."""
    with run_broker() as running:
        yield running.bootstrap


@pytest.fixture
def service(own_broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", own_broker)
    running = Service(own_broker, tmp_path)
    yield running
    assert running.process.stop() == 0, running.process.output_text()


def project_in(directory: Path, **changes: str) -> Path:
    """A copy of the example, with its state beside it."""
    shutil.copytree(EXAMPLE, directory)
    file = directory / "spark-pipeline.yml"
    text = file.read_text().replace("file:///tmp/barnabas-orders-declarative", (directory / "state").as_uri())
    for old, new in {"10 seconds": "100 ms", **changes}.items():
        text = text.replace(old, new)
    file.write_text(f"{text}  spark.barnabas.restart.backoff: 100 ms\n")
    return file


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Rows of a streaming table, as readers see them: of the files that Spark's log of it lists."""
    log = table / "_spark_metadata"
    found = []
    for entry in log.iterdir():
        if entry.name.isdecimal():
            lines = entry.read_text().splitlines()[1:]
            paths = [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]
            found += [row for path in paths for row in rows_in(path)]
    return found


def rows_in(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
    return rows


def updates(service: Service) -> list[psutil.Process]:
    """Every process of the running update."""
    children = psutil.Process(service.process.pid).children(recursive=True)
    first = [each for each in children if UPDATE in _words(each)]
    return [*first, *(child for each in first for child in each.children(recursive=True))]


def _words(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return words


@pytest.mark.timeout(3 * PATIENCE_S)
def test_a_project_is_updated_by_new_records_and_survives_its_driver(
    service: Service, own_broker: str, tmp_path: Path
) -> None:
    produce(own_broker, "orders", [{"id": at, "status": "new", "cents": at} for at in range(10)])
    project = project_in(tmp_path / "project")
    assert "started orders-declarative" in service.cli("start", str(project))
    found = service.wait("orders-declarative", "RUNNING", records=10)
    assert (found["lag"], found["last_error"]) == (0, None)
    assert "last update" in service.cli("status", "orders-declarative")
    warehouse = project.parent / "spark-warehouse"
    assert sorted(row["id"] for row in rows_of(warehouse / "orders")) == list(range(10))

    produce(own_broker, "orders", [{"id": at, "status": "paid", "cents": at} for at in range(10, 15)])
    second = project.parent / "state/_checkpoints/spark_catalog/default/orders/orders/0/offsets/1"
    eventually(second.exists, timeout_s=PATIENCE_S)  # Spark has begun the micro-batch
    assert len(updates(service)) >= 3  # our process, Spark's, and its JVM
    for process in updates(service):
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    found = service.wait("orders-declarative", "RUNNING", records=15)
    assert found["restarts"] >= 1
    rows = [(row["id"], row["status"]) for row in rows_of(warehouse / "orders")]
    assert sorted(rows) == [(at, "new" if at < 10 else "paid") for at in range(15)]
    view = [row for part in (warehouse / "orders_by_status").glob("*.parquet") for row in rows_in(part)]
    assert {row["status"]: row["changes"] for row in view} == {"new": 10, "paid": 5}

    service.cli("pause", "orders-declarative")
    service.wait("orders-declarative", "PAUSED")
    produce(own_broker, "orders", [{"id": 15, "status": "new", "cents": 0}])
    eventually(lambda: service.status("orders-declarative")["lag"] == 1)
    positions = [line.split() for line in service.cli("offsets", "orders-declarative").splitlines()]
    assert sum(int(words[2]) for words in positions if words[:1] == ["orders"]) == 15
    service.cli("delete", "orders-declarative")
    assert "orders-declarative" not in service.cli("list")
    assert len(rows_of(warehouse / "orders")) == 15


@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_failure_is_told_in_sparks_words(service: Service, own_broker: str, tmp_path: Path) -> None:
    produce(own_broker, "orders", [{"id": 1, "status": "new", "cents": 1}])
    project = project_in(
        tmp_path / "project", **{"1 hour": '1 hour\n  spark.barnabas.restart.max_attempts: "0"'}
    )
    query = project.parent / "transformations" / "orders_by_status.sql"
    query.write_text(query.read_text().replace("sum(cents)", "sum(dollars)"))
    service.cli("start", str(project))
    error = service.wait("orders-declarative", "FAILED")["last_error"]
    assert "UNRESOLVED_COLUMN" in error
    assert "dollars" in error
    assert "\n" not in error
    assert len(error) < 1_000


@pytest.mark.timeout(2 * PATIENCE_S)
def test_an_exported_pipeline_writes_the_same_rows(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    from barnabas.pipelines.service.hosting.update_process import run_update
    from barnabas.pipelines.spec.yaml_source import read_yaml

    source, out = new_topic(), new_topic()
    orders: list[Any] = [{"id": at, "name": f"jó {at}", "cents": at * 100} for at in range(5)]
    produce(bootstrap, source, [*orders, {"id": 5, "name": None, "cents": 7}, {"id": 6, "name": "zoë"}])
    reading = f"source: {{type: topic, topics: {source}, schema: 'id BIGINT, name STRING, cents INT'}}\n"
    table = tmp_path / "table.yaml"
    table.write_text(
        f"name: clean-orders\n{reading}transforms:\n  - filter: id > 1\n"
        "  - sql: SELECT id, upper(name) AS name, cents / 100 AS amount FROM input WHERE cents IS NOT NULL\n"
        f"sink: {{type: files, path: {tmp_path}/yaml}}\n"
    )
    records = tmp_path / "records.yaml"
    records.write_text(
        f"name: orders-again\n{reading}transforms:\n"
        "  - sql: SELECT id, name, cents, _timestamp FROM input\n"
        f"sink: {{type: topic, topic: {out}, key: [id]}}\ndelivery: at-least-once\n"
    )
    directory = tmp_path / "project"
    for spec in (records, table):
        (directory / "spark-pipeline.yml").unlink(missing_ok=True)
        words = ["pipeline", "export", str(spec), "--directory", str(directory), "--bootstrap", bootstrap]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
    for spec in (table, records):
        run_spec(read_yaml(spec.read_text()).document)
    expected = consume(bootstrap, out)
    outcome = asyncio.run(run_update(str(directory / "spark-pipeline.yml"), asyncio.Event()))
    assert outcome.error is None

    def amounts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((row["id"], row["name"], row["amount"]) for row in rows)

    assert amounts(rows_of(directory / "spark-warehouse" / "clean_orders")) == amounts(
        rows_of(tmp_path / "yaml")
    )
    assert len(rows_of(tmp_path / "yaml")) == 4
    again = consume(bootstrap, out)
    assert len(again) == 2 * len(expected)
    assert {(each.key, each.value) for each in again} == {(each.key, each.value) for each in expected}
