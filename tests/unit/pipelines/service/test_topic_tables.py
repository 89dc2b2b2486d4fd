"""Pipelines that the service makes and keeps for topics with `barnabas.table`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import uuid4

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.config.definitions.topics import TABLE
from barnabas.core.ids import Uuid
from barnabas.pipelines.service.store import Stored, Target
from barnabas.pipelines.service.topic_tables import (
    MISSING_MS,
    TOPIC_ID,
    Allowed,
    TopicTable,
    TopicTables,
)
from barnabas.pipelines.spec.connect.config import spec_of_config

FIRST, SECOND = Uuid(uuid4().bytes), Uuid(uuid4().bytes)


class Pipelines:
    def __init__(self) -> None:
        self.is_leader = True
        self.rows: dict[str, Stored] = {}
        self.running: set[str] = set()
        self.deleted: list[str] = []

    def names(self) -> list[str]:
        return sorted(self.rows)

    def stored(self, name: str) -> Stored:
        return self.rows[name]

    def is_at_rest(self, name: str) -> bool:
        return name not in self.running

    async def keep(self, name: str, config: Mapping[str, str]) -> None:
        known = self.rows.get(name)
        self.rows[name] = Stored(name, dict(config), known.target if known else Target.RUNNING)

    async def set_target(self, name: str, target: Target) -> None:
        self.rows[name] = Stored(name, self.rows[name].config, target)

    async def delete(self, name: str) -> None:
        self.deleted.append(name)
        del self.rows[name]


class World:
    def __init__(self, *places: str) -> None:
        self.pipelines = Pipelines()
        self.topics: dict[str, TopicTable] = {}
        self.is_away = False
        self.clock = ManualClock()
        allowed = Allowed(places, is_anywhere=not places)
        self.kept = TopicTables(self.pipelines, self, self.clock, allowed, {})

    async def tables(self) -> dict[str, TopicTable]:
        if self.is_away:
            raise ClusterUnreachable("away")
        return dict(self.topics)

    async def see(self, topic: str, setting: str | None, topic_id: Uuid = FIRST) -> None:
        self.topics[topic] = TopicTable(topic_id, setting)
        await self.kept.refresh()


async def test_a_topic_with_the_setting_gets_a_pipeline_that_a_change_changes() -> None:
    world = World()
    await world.see("plain", None)
    await world.see("orders", "delta:/lake/orders")
    assert world.pipelines.names() == ["table-orders"]
    config = world.pipelines.stored("table-orders").config
    assert spec_of_config("table-orders", config).sink["path"] == "/lake/orders"
    assert (config[TABLE], config[TOPIC_ID]) == ("delta:/lake/orders", str(FIRST))
    await world.see("orders", "iceberg:/lake/orders")
    changed = world.pipelines.stored("table-orders")
    assert spec_of_config("table-orders", changed.config).sink["format"] == "iceberg"
    assert world.pipelines.deleted == []


async def test_a_pipeline_that_a_user_has_paused_stays_paused() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    await world.pipelines.set_target("table-orders", Target.PAUSED)
    await world.kept.refresh()
    assert world.pipelines.stored("table-orders").target is Target.PAUSED


async def test_a_removed_setting_ends_the_pipeline_after_its_last_commit() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    world.pipelines.running.add("table-orders")
    await world.see("orders", None)
    assert world.pipelines.stored("table-orders").target is Target.STOPPED
    world.pipelines.running.clear()
    await world.kept.refresh()
    assert world.pipelines.names() == []


async def test_a_setting_that_comes_back_lets_the_pipeline_run() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    world.pipelines.running.add("table-orders")
    await world.see("orders", None)
    await world.see("orders", "delta:/lake/orders")
    assert world.pipelines.stored("table-orders").target is Target.RUNNING


async def test_a_topic_that_was_created_again_begins_its_pipeline_again() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    await world.see("orders", "delta:/lake/orders", SECOND)
    assert world.pipelines.deleted == ["table-orders"]
    assert world.pipelines.stored("table-orders").config[TOPIC_ID] == str(SECOND)


async def test_a_topic_that_a_broker_does_not_know_for_a_moment_keeps_its_pipeline() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    gone = world.topics.pop("orders")
    await world.kept.refresh()
    world.clock.advance(ms=MISSING_MS - 1)
    await world.kept.refresh()
    world.topics["orders"] = gone
    await world.kept.refresh()
    del world.topics["orders"]
    await world.kept.refresh()
    world.clock.advance(ms=MISSING_MS - 1)
    await world.kept.refresh()
    assert world.pipelines.deleted == []
    world.clock.advance(ms=1)
    await world.kept.refresh()
    assert world.pipelines.deleted == ["table-orders"]


async def test_a_cluster_that_is_away_changes_nothing() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    world.is_away = True
    world.clock.advance(ms=2 * MISSING_MS)
    await world.kept.refresh()
    assert world.pipelines.names() == ["table-orders"]


async def test_a_service_that_does_not_lead_makes_no_pipelines() -> None:
    world = World()
    world.pipelines.is_leader = False
    await world.see("orders", "delta:/lake/orders")
    assert world.pipelines.names() == []


async def test_a_pipeline_of_a_user_is_not_touched(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    own = Stored("table-orders", {"connector.class": "RateSource"})
    world.pipelines.rows["table-orders"] = own
    with caplog.at_level(logging.WARNING):
        await world.see("orders", "delta:/lake/orders")
        await world.see("orders", None)
    assert world.pipelines.rows == {"table-orders": own}
    assert [record.message for record in caplog.records] == [
        "topic orders gets no table (barnabas.table): there is another pipeline table-orders"
    ]


@pytest.mark.parametrize(
    ("place", "is_allowed"),
    [
        ("/lake/orders", True), ("/lake", True), ("/lakeside/orders", False), ("/lake/../etc", False),
        ("s3://lake/orders", True), ("s3://other/orders", False),
    ],
)  # fmt: skip
async def test_tables_are_only_where_the_service_allows_them(place: str, is_allowed: bool) -> None:
    world = World("/lake", "s3://lake/")
    await world.see("orders", f"delta:{place}")
    assert bool(world.pipelines.names()) is is_allowed


async def test_a_mistake_is_logged_once_and_the_other_topics_get_their_tables(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    with caplog.at_level(logging.WARNING):
        await world.see("broken", "delta:/lake/broken?shema=id INT")
        await world.see("orders", "delta:/lake/orders")
    assert world.pipelines.names() == ["table-orders"]
    assert len(caplog.records) == 1
    assert "did you mean 'schema'?" in caplog.text
