"""Answers of two brokers, joined; and a viewer who may not see everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.producer.producer import Producer
from barnabas.console.view.local.brokers import LocalBrokers, find_sockets
from barnabas.console.view.local.local_view import LocalView
from barnabas.console.view.rows import GroupQuery, TopicQuery
from barnabas.core.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
)
from barnabas.core.ids import TopicPartition
from barnabas.security.acl.bindings import AccessRule, AclBinding, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.in_process import InProcessBroker, in_process_broker
from tests.support.waiting import eventually_async

SETTINGS = {
    "offsets_topic_num_partitions": 4,
    "offsets_topic_replication_factor": 1,
    "metrics_group_lag_interval_ms": 100,
}


@asynccontextmanager
async def two_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[list[InProcessBroker], LocalView, Admin]]:
    async with shared_store(tmp_path, monkeypatch):
        brokers = [cluster_broker(tmp_path / f"broker-{each}", each, **SETTINGS) for each in (1, 2)]
        for broker in brokers:
            await broker.start()
            await broker.broker.serve_inspection()
        sockets = find_sockets(tmp_path)
        assert len(sockets) == 2
        joined = LocalBrokers(sockets)
        async with Admin(str(brokers[0].address)) as admin:
            yield brokers, LocalView(joined, None), admin
        await joined.close()
        for broker in brokers:
            await broker.stop()


async def test_the_answers_of_two_brokers_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path, monkeypatch) as (brokers, view, admin):
        await admin.create_topics([NewTopic(f"t{number}", 2, 1) for number in range(4)])
        await admin.create_topics([NewTopic("both", 2, 2)])
        async with Producer(str(brokers[0].address)) as producer:
            for number in range(4):
                for each in range(number + 1):
                    await producer.publish(f"t{number}", b"v", partition=each % 2)
        for number in range(4):
            offsets = {TopicPartition(f"t{number}", each): 0 for each in (0, 1)}
            await admin.alter_group_offsets(f"g{number}", offsets)

        async def is_complete() -> bool:
            page = await view.groups(GroupQuery(sort="lag", descending=True))
            return [(row.group_id, row.lag_records) for row in page.rows] == [
                ("g3", 4), ("g2", 3), ("g1", 2), ("g0", 1),
            ]  # fmt: skip

        await eventually_async(is_complete)
        assert len({row.coordinator_id for row in (await view.groups(GroupQuery())).rows}) == 2
        third = await view.groups(GroupQuery(sort="lag", descending=True, offset=2, limit=1))
        assert ([row.group_id for row in third.rows], third.total) == (["g1"], 4)
        page = await view.topics(TopicQuery(search="t", sort="records", descending=True, limit=3))
        assert [(row.name, row.records) for row in page.rows] == [("t3", 4), ("t2", 3), ("t1", 2)]
        by_name = await view.topics(TopicQuery(offset=1, limit=2))
        assert ([row.name for row in by_name.rows], by_name.total) == (["t0", "t1"], 5)
        detail = await view.topic("t3")
        assert [row.end_offset for row in detail.partitions] == [2, 2]
        overview = await view.overview()
        assert [row.broker_id for row in overview.brokers] == [1, 2]
        assert sum(row.leaders for row in overview.brokers) == overview.partitions
        assert all(row.size_bytes is not None for row in overview.brokers)
        assert (overview.lag_records, overview.groups) == (10, 4)
        picture = await view.log_picture("both", 0)
        (follower,) = picture.followers
        assert {picture.leader_id, follower.broker_id} == {1, 2}
        assert follower.is_in_sync

        await brokers[1].broker.shutdown()
        known = await view.topic("t3")
        assert known.row.records is None, "a partition of it is led by nobody who answers"
        overview = await view.overview()
        assert overview.offline > 0


async def test_nothing_is_seen_without_brokers(tmp_path: Path) -> None:
    brokers = LocalBrokers([tmp_path / "nobody.sock"])
    with pytest.raises(ClusterUnreachable):
        await LocalView(brokers, None).overview()


def allowing(user: str, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        ResourcePattern(kind, name, PatternType.LITERAL),
        AccessRule(f"User:{user}", "*", Operation.DESCRIBE, Permission.ALLOW),
    )


async def test_a_viewer_sees_what_it_may_describe(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:ANONYMOUS",
        "offsets_topic_num_partitions": 1,
    }
    async with in_process_broker(tmp_path / "data", **settings) as broker:
        await broker.broker.serve_inspection()
        brokers = LocalBrokers(find_sockets(tmp_path / "data"))
        async with Admin(str(broker.address)) as admin:
            await admin.create_topics([NewTopic("seen", 1, 1), NewTopic("hidden", 1, 1)])
            for group in ("mine", "theirs"):
                offsets = {TopicPartition("seen", 0): 0, TopicPartition("hidden", 0): 0}
                await admin.alter_group_offsets(group, offsets)
            await admin.create_acls(
                [allowing("alice", ResourceType.TOPIC, "seen"), allowing("alice", ResourceType.GROUP, "mine")]
            )
        alice, everybody = LocalView(brokers, "User:alice"), LocalView(brokers, None)

        async def is_known() -> bool:
            return bool((await alice.topics(TopicQuery())).rows)

        await eventually_async(is_known)
        for sort in ("name", "records"):
            page = await alice.topics(TopicQuery(sort=sort, include_internal=True))
            assert [row.name for row in page.rows] == ["seen"]
        assert [row.groups for row in page.rows] == [1]
        assert [row.group_id for row in (await alice.groups(GroupQuery())).rows] == ["mine"]
        assert [row.topic for row in (await alice.group("mine")).offsets] == ["seen"]
        assert ((await alice.overview()).topics, (await everybody.overview()).topics) == (1, 2)
        assert (await alice.overview()).groups == 1
        assert (await alice.log_picture("seen", 0)).committed == (("mine", 0),)
        with pytest.raises(TopicAuthorizationFailed):
            await alice.topic("hidden")
        with pytest.raises(TopicAuthorizationFailed):
            await alice.log_picture("hidden", 0)
        with pytest.raises(GroupAuthorizationFailed):
            await alice.group("theirs")
        with pytest.raises(ClusterAuthorizationFailed):
            await alice.clients()
        assert await everybody.clients() == ()
        await brokers.close()
