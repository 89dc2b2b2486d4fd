"""Pipelines that the service makes and keeps for topics with `barnabas.table`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.support.manual_time import ManualClock
from tests.support.slices import in_one_go

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.config.definitions.topics import TABLE
from barnabas.core.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from barnabas.core.ids import Uuid
from barnabas.pipelines.service import topic_tables
from barnabas.pipelines.service.cluster_tables import ClusterTables
from barnabas.pipelines.service.store import Stored, Target
from barnabas.pipelines.service.topic_tables import (
    MISSING_MS,
    TOPIC_ID,
    Allowed,
    TopicTable,
    TopicTables,
)
from barnabas.pipelines.spec.connect.config import spec_of_config
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

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


@pytest.mark.parametrize(
    "setting",
    [
        "delta:/lake/${env:HOME}",
        "delta:/lake/orders?schema_registry=http://127.0.0.1:9/${file:/etc/passwd:root}",
        "delta:/lake/orders?schema_registry=http://127.0.0.1:9/%24%7Bfile:/etc/passwd:root}",
        "delta:/lake/orders?key=${env:SECRET}",
    ],
)
async def test_a_setting_reads_no_file_and_no_variable_of_the_service(
    setting: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    await world.see("orders", setting)
    assert world.pipelines.names() == []
    assert "holds no references" in caplog.text


async def test_a_schema_registry_is_in_a_place_for_tables() -> None:
    world = World("/lake", "http://registry:8081")
    options = "?format=avro&schema_registry="
    await world.see("a", f"delta:/lake/a{options}http://registry:8081")
    await world.see("b", f"delta:/lake/b{options}http://registry:8081@elsewhere")
    await world.see("c", f"delta:/lake/c{options}http://elsewhere/")
    assert world.pipelines.names() == ["table-a"]


async def test_tables_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(topic_tables, "TABLES_MAX", 2)
    world = World()
    for topic in ("a", "b", "c"):
        await world.see(topic, f"delta:/lake/{topic}")
    assert world.pipelines.names() == ["table-a", "table-b"]
    assert "keeps 2 tables" in caplog.text
    await world.see("a", "delta:/lake/other")
    assert "/lake/other" in world.pipelines.stored("table-a").config[TABLE]
    await world.see("a", None)
    await world.see("c", "delta:/lake/c")
    assert world.pipelines.names() == ["table-b", "table-c"]


async def test_settings_that_change_all_the_time_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    for number in range(100):
        await world.see("orders", f"delta:/lake/orders?{'x' * 10_000}{number}=1")
    assert len(caplog.records) <= 10
    assert max(len(each.getMessage()) for each in caplog.records) < 1_000


async def test_a_pipeline_of_a_user_with_that_key_is_another_pipeline() -> None:
    world = World()
    world.pipelines.rows["table-orders"] = Stored("table-orders", {TABLE: "delta:/x"}, Target.RUNNING)
    await world.see("orders", "delta:/lake/orders")
    await world.see("orders", None)
    assert world.pipelines.stored("table-orders").config == {TABLE: "delta:/x"}


async def test_a_topic_whose_settings_are_hidden_keeps_what_it_has_and_stops_no_other() -> None:
    world = World()
    await world.see("orders", "delta:/lake/orders")
    world.topics["orders"] = TopicTable(FIRST, None, is_known=False)
    await world.see("more", "delta:/lake/more")
    assert world.pipelines.names() == ["table-more", "table-orders"]


async def test_a_cluster_hides_the_settings_of_some_topics() -> None:
    found = await ClusterTables(cast("Any", Cluster())).tables()
    assert found == {
        "a": TopicTable(FIRST, "delta:/lake/a"),
        "b": TopicTable(SECOND, None, is_known=False),
    }


class Cluster:
    """Two topics, of which one may be described alone, and a third that is deleted meanwhile."""

    def __init__(self) -> None:
        ids = {"a": FIRST, "b": SECOND, "c": FIRST}
        self.topics = {
            name: SimpleNamespace(topic_id=topic_id, is_internal=False) for name, topic_id in ids.items()
        }
        self.state = self

    async def run_with_retries(self, steps: Callable[[], Generator[None, None, Any]]) -> Any:
        return in_one_go(steps())

    def refresh(self, _: None) -> Generator[None, None, None]:
        yield

    def ask_controller(self, *_: object) -> Generator[None, None, DescribeConfigsResponse]:
        yield
        codes = {"a": 0, "b": TopicAuthorizationFailed.code, "c": UnknownTopicOrPartition.code}
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=code,
                    resource_type=2,
                    resource_name=name,
                    configs=[DescribeConfigsResourceResult(name=TABLE, value=f"delta:/lake/{name}")]
                    if not code
                    else [],
                )
                for name, code in codes.items()
            ]
        )
