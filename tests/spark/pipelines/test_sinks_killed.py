"""Kill matrix of the sinks on Spark: whole drivers die, or stand still and come back beside a successor.

A driver is all processes of its session, as in `tests.spark.kill_matrix`. What readers that are not ours
find afterwards must be the input, each record once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from tests.spark.kill_matrix import hooks
from tests.spark.kill_matrix.harness import ATTEMPTS, Driver
from tests.spark.pipelines.test_mirror import content, records
from tests.support.broker import REPOSITORY, Broker
from tests.support.fixtures import TopicFactory, create_topic
from tests.support.mariadb import run_mariadb
from tests.support.postgres import run_postgres
from tests.support.process import ServerProcess
from tests.support.receiver import Receiver, run_receiver
from tests.support.spark import require_spark
from tests.support.table_reading import check_same_rows, data_paths, live_paths, read_rows
from tests.support.topics import consume, produce

pytestmark = [pytest.mark.kill_matrix, pytest.mark.timeout(1_200)]

POINTS = ("written", "in-commit", "committed")
RECORDS, LATE = 24, 8
TABLES = tuple(f"{kind}-{way}" for kind in ("delta", "iceberg") for way in ("direct", "spark", "upsert"))
"""Tables without Spark's decoder, with it, and by key."""
DATABASES = ("postgresql", "mysql", "sqlite")
SENDERS = ("http",)
Rows = dict[int, str]


def cases(*sinks: str, suspended: bool = False) -> list[tuple[str, str]]:
    """Sinks and points. Requests have no commit; and a suspended driver keeps its locks in a database, which
    `tests/scenario/pipelines/test_databases_killed.py` has instead."""
    skipped = {(sink, "in-commit") for sink in (*SENDERS, *(DATABASES if suspended else ()))}
    return [(sink, point) for sink in sinks for point in POINTS if (sink, point) not in skipped]


class SpecDriver(Driver):
    def __init__(self, world: World, *, point: str = "") -> None:
        self._signals = world.directory / f"run-{uuid4()}"
        self._signals.mkdir()
        given = {
            "spec": world.spec, "bootstrap": world.bootstrap, "state": str(world.directory / "state"),
            "directory": str(self._signals),
        }  # fmt: skip
        self._process = ServerProcess(
            [sys.executable, "-m", "tests.spark.pipelines.spec_driver", json.dumps(given)],
            environment={
                "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)]),
                "PYSPARK_PYTHON": sys.executable,
                hooks.POINT: point,
                hooks.DIES: "",
                hooks.DIRECTORY: str(self._signals),
            },
            working_directory=self._signals,
        )


class World:
    """A pipeline into one sink, its input, and what a reader finds."""

    def __init__(
        self, sink: str, bootstrap: str, source: str, directory: Path, stack: ExitStack, row_bytes: int
    ) -> None:
        self.sink, self.bootstrap, self.source = sink, bootstrap, source
        self.directory, self.row_bytes = directory, row_bytes
        self.lake = directory / "lake"
        self.wanted: Rows = {}
        self._produced = 0
        self._stack = stack
        self._drivers: list[SpecDriver] = []
        self._service: Receiver | None = None
        self._query: Any = None
        self.spec: dict[str, Any] = {
            "name": "killed",
            "source": {
                "type": "topic", "topics": source, "schema": "id BIGINT, text STRING",
                "max_offsets_per_trigger": 8,
            },
            "sink": self._sink_options(),
        }  # fmt: skip
        if sink.endswith("-spark"):
            self.spec["transforms"] = [{"sql": "SELECT * FROM input"}]
        if sink == "mirror":
            self.spec["source"] = {
                "type": "topic", "topics": source, "format": "raw", "max_offsets_per_trigger": 8,
            }  # fmt: skip

    @property
    def is_upsert(self) -> bool:
        return self.sink.endswith("-upsert")

    def produce(self, count: int) -> None:
        """Keys come back in an upsert. Every value names the record, so no two are equal."""
        first = self._produced
        for at in range(first, first + count):
            number = at % (RECORDS // 2) if self.is_upsert else at
            text = f"{at}-{number}".ljust(self.row_bytes, ".")
            produce(self.bootstrap, self.source, [{"id": number, "text": text}], key=str(number).encode())
            self.wanted[number] = text
        self._produced = first + count

    def start_until(self, point: str) -> SpecDriver:
        """A driver that stands at the point in its second micro-batch."""
        for _ in range(ATTEMPTS):
            driver = SpecDriver(self, point=f"{point}:2")
            self._drivers.append(driver)
            if driver.wait_reached() is not None:
                return driver
            # Spark gives its Python workers ten seconds to start, which a busy machine may exceed.
            assert "failed to connect back" in driver.output, f"it never came to {point}:\n{driver.output}"
        raise AssertionError("Spark's Python workers do not start")

    def run_until_caught_up(self) -> None:
        for _ in range(ATTEMPTS):
            driver = SpecDriver(self)
            self._drivers.append(driver)
            if driver.wait_end() == 0:
                return
        raise AssertionError(f"the pipeline does not recover:\n{driver.output}")

    def kill_all(self) -> None:
        for driver in self._drivers:
            driver.kill()

    def check(self) -> None:
        found = self._found()
        assert sorted(number for number, _ in found) == sorted(self.wanted)
        assert dict(found) == self.wanted

    def _sink_options(self) -> dict[str, Any]:
        if self.sink in TABLES:
            kind, way = self.sink.split("-")
            pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])
            key = {"mode": "upsert", "key": ["id"]} if way == "upsert" else {"mode": "append"}
            return {"type": "table", "format": kind, "path": str(self.lake), **key}
        if self.sink == "files":
            return {"type": "files", "path": str(self.lake)}
        if self.sink == "http":
            self._service = self._stack.enter_context(run_receiver())
            return {"type": "http", "url": self._service.url, "max_body_bytes": 4_000_000}
        if self.sink == "mirror":
            return {"type": "mirror", "prefix": "copy."}
        url = f"sqlite:{self.directory / 'shop.db'}"
        if self.sink == "postgresql":
            server = self._stack.enter_context(run_postgres())
            url, self._query = server.url, server.query
        elif self.sink == "mysql":
            running = self._stack.enter_context(run_mariadb())
            url, self._query = running.url, running.query
        return {"type": "jdbc", "url": url, "table": "orders", "mode": "insert"}

    def _found(self) -> list[tuple[int, str]]:
        if self.sink in TABLES:
            return [(row["id"], row["text"]) for row in read_rows(self.sink.split("-")[0], self.lake)]
        if self.sink == "files":
            return self._in_files()
        if self._service is not None:
            bodies = [json.loads(each.body) for each in self._service.taken]
            return [(body["id"], body["text"]) for body in bodies]
        if self.sink == "mirror":
            copy, original = (records(self.bootstrap, f"{prefix}{self.source}") for prefix in ("copy.", ""))
            assert content(copy) == content(original)
            values = [json.loads(row[1]) for rows in copy.values() for row in rows]
            return [(value["id"], value["text"]) for value in values]
        if self._query is not None:
            return [(number, text) for number, text in self._query("SELECT id, text FROM orders")]
        with closing(sqlite3.connect(self.directory / "shop.db")) as connection:
            return connection.execute("SELECT id, text FROM orders").fetchall()

    def _in_files(self) -> list[tuple[int, str]]:
        """Rows of the files that the log lists, as Polars and DuckDB read them."""
        polars = pytest.importorskip("polars")
        entries = [*(self.lake / "_spark_metadata").glob("[0-9]*")]
        lines = {line for each in entries for line in each.read_text().splitlines() if line.startswith("{")}
        files = sorted({json.loads(line)["path"].removeprefix("file://") for line in lines})
        frame = polars.read_parquet(files)
        check_same_rows(frame, files)
        return [(row["id"], row["text"]) for row in frame.to_dicts()]


@pytest.fixture
def row_bytes() -> int:
    return 100


@pytest.fixture
def world(
    sink: str, bootstrap: str, new_topic: TopicFactory, tmp_path: Path, row_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:  # fmt: skip
    require_spark()
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    with ExitStack() as stack:
        source = new_topic(partitions=2, max_message_bytes=4_000_000)
        made = World(sink, bootstrap, source, tmp_path, stack, row_bytes)
        stack.callback(made.kill_all)
        made.produce(RECORDS)
        yield made


@pytest.mark.parametrize("row_bytes", [100, 950_000])
@pytest.mark.parametrize(("sink", "point"), cases("files", *DATABASES, "mirror", *SENDERS))
def test_a_driver_killed_anywhere_leaves_every_record_once(world: World, point: str) -> None:
    world.start_until(point).kill()
    world.produce(LATE)
    world.run_until_caught_up()
    world.check()


@pytest.mark.parametrize(
    ("sink", "point"), cases(*TABLES, "files", "mirror", *DATABASES, *SENDERS, suspended=True)
)
def test_a_driver_thought_dead_changes_nothing_when_it_goes_on(world: World, point: str) -> None:
    zombie = world.start_until(point)
    zombie.suspend()
    zombie.release()
    world.produce(LATE)
    world.run_until_caught_up()
    world.check()
    zombie.resume()
    zombie.wait_end()
    world.check()
    world.produce(LATE)
    world.run_until_caught_up()
    world.check()


@pytest.mark.parametrize("sink", ["delta-direct", "iceberg-direct"])
def test_a_driver_killed_between_both_ways_leaves_no_file_of_the_first(world: World) -> None:
    """A doubtful record is found in one task, when the other has written its file."""
    produce(world.bootstrap, world.source, [{"id": 1_000, "text": 5}], key=b"1000")
    world.wanted[1_000] = "5"
    world.produce(LATE)
    for _ in range(ATTEMPTS):
        driver = SpecDriver(world, point="doubtful")
        world._drivers.append(driver)
        if driver.wait_reached() is not None:
            break
    driver.kill()
    world.run_until_caught_up()
    world.check()
    assert data_paths(world.lake) == set(live_paths(world.sink.split("-")[0], world.lake))


@pytest.mark.parametrize("sink", [*TABLES, "files", "sqlite", "mirror"])
def test_a_topic_that_is_created_again_under_a_killed_driver_is_noticed(world: World, broker: Broker) -> None:
    """Its driver died in the commit, so the batch of the old topic is still to be run."""
    world.start_until("in-commit").kill()
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    admin.delete_topics([world.source])[world.source].result()
    create_topic(broker, world.source)
    produce(world.bootstrap, world.source, [{"id": at, "text": "new"} for at in range(1_000, 1_006)])
    driver = SpecDriver(world)
    world._drivers.append(driver)
    assert driver.wait_end() != 0, "the pipeline goes on as if nothing had happened"
    assert "created again" in driver.output
    if world.sink != "mirror":
        assert {number for number, _ in world._found()} <= set(world.wanted)
    else:
        copied = consume(world.bootstrap, f"copy.{world.source}")
        assert {json.loads(each.value or b"{}")["id"] for each in copied} <= set(world.wanted)
