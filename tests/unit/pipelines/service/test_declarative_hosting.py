"""Hosting of declarative pipelines, with updates that only write checkpoints."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pipelines.service.test_declarative_positions import Cluster, write_checkpoint

from barnabas.core.clock import SystemClock
from barnabas.pipelines.service.declarative.trust import (
    NOTHING_TRUSTED,
    PROJECT_BYTES_MAX,
    Trusted,
    checked_project,
)
from barnabas.pipelines.service.hosting.hosting import Hosting
from barnabas.pipelines.service.hosting.update_process import Outcome
from barnabas.pipelines.spec.connect.config import spec_of_config
from barnabas.pipelines.spec.declarative.settings import declarative_config
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.state.progress import Progress

ANYWHERE = Trusted(is_anywhere=True)
SECONDS_MAX = 60.0


class Watcher:
    """Observer that remembers."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.progress: list[Progress] = []
        self.ended = asyncio.Event()
        self.changed = asyncio.Event()

    def on_running(self, name: str, attempt: int) -> None:
        self.events.append(f"running {name} {attempt}")

    def on_progress(self, name: str, attempt: int, progress: Progress) -> None:
        self.progress.append(progress)
        self.changed.set()

    def on_ended(
        self,
        name: str,
        attempt: int,
        error: str | None,
        *,
        is_final: bool = False,
        is_counted: bool = True,
    ) -> None:
        self.events.append(f"ended {error} {is_counted}")
        self.ended.set()


class Spark:
    """Updates that read everything there is, unless they fail or are stuck."""

    def __init__(self, storage: Path, cluster: Cluster) -> None:
        self.storage = storage
        self.cluster = cluster
        self.outcome = Outcome()
        self.updates = 0
        self.is_stuck = False
        self.is_endless = False
        self.begun = asyncio.Event()

    async def update(self, file: str, stopped: asyncio.Event) -> Outcome:
        self.updates += 1
        self.begun.set()
        if self.is_endless:
            await stopped.wait()
        if not self.is_stuck and self.outcome.error is None:
            topic_id, partitions = self.cluster.topics["orders"]
            ends = {str(each): end for each, (_, end) in partitions.items()}
            offsets = {"orders": ends, "@topic_ids": {"orders": topic_id}}
            if any(ends.values()):  # without records, Spark begins no micro-batch
                write_checkpoint(self.storage, "orders", offsets, batch=self.updates)
        return self.outcome


class World:
    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(orders=("id", {0: (0, 3)}))
        self.storage = directory / "state"
        self.spark = Spark(self.storage, self.cluster)
        self.file = directory / "spark-pipeline.yml"
        self.file.write_text(
            f"name: orders\nstorage: {self.storage.as_uri()}\nlibraries: [{{glob: {{include: orders.py}}}}]\n"
        )
        (directory / "orders.py").write_text('option("subscribe", "orders")\n')
        self.watcher = Watcher()
        self.hosting = Hosting(self.spark.update, self.cluster, SystemClock(), ANYWHERE)

    def start(self, **settings: str) -> None:
        self.hosting.start(self.spec(**settings), 0, 1, self.watcher)

    def spec(self, **settings: str) -> PipelineSpec:
        named = {"update.min.interval": "1 ms", **settings}
        return spec_of_config("orders", declarative_config("orders", self.file, named))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not condition():
                self.watcher.changed.clear()
                await self.watcher.changed.wait()


def test_an_update_follows_new_records_and_a_stop_ends_the_wait(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.start()
        await world.until(lambda: len(world.watcher.progress) == 1)
        first = world.watcher.progress[0]
        assert (first.records, first.lag, first.offsets) == (3, 0, {"orders": {"0": 3}})
        world.cluster.topics["orders"] = ("id", {0: (0, 5)})
        await world.until(lambda: len(world.watcher.progress) == 2)
        assert (world.watcher.progress[1].records, world.spark.updates) == (2, 2)
        world.hosting.stop("orders")
        await world.watcher.ended.wait()
        assert world.watcher.events == ["running orders 1", "ended None True"]
        await world.hosting.close()

    asyncio.run(check())


def test_the_first_record_of_an_empty_topic_starts_an_update(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.cluster.topics["orders"] = ("id", {0: (0, 0)})
        world.start()
        await world.until(lambda: len(world.watcher.progress) == 1)
        assert (world.watcher.progress[0].records, world.watcher.progress[0].lag) == (0, 0)
        world.cluster.topics["orders"] = ("id", {0: (0, 1)})
        await world.until(lambda: len(world.watcher.progress) == 2)
        assert (world.watcher.progress[1].records, world.watcher.progress[1].lag) == (1, 0)
        await world.hosting.close()

    asyncio.run(check())


def test_a_stop_ends_an_update(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.spark.is_endless = True
        world.spark.outcome = Outcome("the process of the update ended with code -9")
        world.start()
        await world.spark.begun.wait()
        await world.hosting.close()
        assert world.watcher.events == ["running orders 1", "ended None True"]
        assert world.watcher.progress == []

    asyncio.run(check())


@pytest.mark.parametrize("is_away", [False, True])
def test_a_failed_update_is_a_failure_of_the_pipeline(tmp_path: Path, is_away: bool) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.spark.outcome = Outcome("[UNRESOLVED_COLUMN] no column", is_away)
        world.start()
        await world.watcher.ended.wait()
        assert world.watcher.events[-1] == f"ended [UNRESOLVED_COLUMN] no column {not is_away}"

    asyncio.run(check())


def test_dead_letters_of_an_update_are_those_that_came_meanwhile(tmp_path: Path) -> None:
    async def check() -> None:
        world = World(tmp_path)
        world.cluster.topics["bad"] = ("b", {0: (0, 4)})
        update = world.spark.update

        async def and_letters(file: str, stopped: asyncio.Event) -> Outcome:
            world.cluster.topics["bad"] = ("b", {0: (0, 6)})
            return await update(file, stopped)

        world.hosting = Hosting(and_letters, world.cluster, SystemClock(), ANYWHERE)
        world.start(**{"errors.deadletterqueue.topic.name": "bad"})
        await world.until(lambda: len(world.watcher.progress) == 1)
        assert world.watcher.progress[0].errors == 2
        await world.hosting.close()

    asyncio.run(check())


def test_a_project_that_cannot_be_read_or_has_another_name_is_a_failure(tmp_path: Path) -> None:
    async def ended(world: World) -> str:
        world.start()
        await world.watcher.ended.wait()
        return world.watcher.events[-1]

    async def check() -> None:
        world = World(tmp_path)
        world.file.write_text(world.file.read_text().replace("name: orders", "name: others"))
        assert "has the name 'others' now, not 'orders'" in await ended(world)
        world = World(tmp_path)
        world.file.unlink()
        assert "No such file" in await ended(world)
        assert world.spark.updates == 0

    asyncio.run(check())


def test_only_trusted_projects_are_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert checked_project(world.file, ANYWHERE).name == "orders"
    assert checked_project(world.file, Trusted((tmp_path,))).name == "orders"
    (tmp_path / "elsewhere").mkdir()
    for trusted in (NOTHING_TRUSTED, Trusted((tmp_path / "elsewhere",))):
        with pytest.raises(InvalidSpec, match="is not in a directory that --projects"):
            checked_project(world.file, trusted)
    around = tmp_path / "elsewhere" / ".." / "spark-pipeline.yml"
    with pytest.raises(InvalidSpec, match="--projects"):
        checked_project(around, Trusted((tmp_path / "elsewhere",)))
    (tmp_path / "orders.py").chmod(0o666)
    with pytest.raises(InvalidSpec, match="can be written by all users"):
        checked_project(world.file, ANYWHERE)


def test_only_small_regular_files_are_read(tmp_path: Path) -> None:
    """A client names the path: a device or a pipe would be read without end."""
    world = World(tmp_path)
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.write_bytes(b"#" * (PROJECT_BYTES_MAX + 1))
    for file, said in ((pipe, "regular file"), (Path("/dev/zero"), "regular file"), (large, "bytes")):
        with pytest.raises(InvalidSpec, match=said):
            checked_project(file, ANYWHERE)
    for trusted in (ANYWHERE, Trusted((tmp_path,))):
        with pytest.raises(InvalidSpec, match="no path"):
            checked_project(Path("/a\0b/spark-pipeline.yml"), trusted)
    assert checked_project(world.file, ANYWHERE).name == "orders"
