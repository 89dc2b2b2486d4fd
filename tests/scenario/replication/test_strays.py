"""Stray replicas, which were taken from a broker while it was down."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.cluster.stores.topics import create_topic
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.node.broker import Broker
from tests.scenario.replication.support import eventually
from tests.support.embedded_cluster import cluster_broker, shared_store

T0 = TopicPartition("t", 0)


def directories(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.name.startswith("t-0"))


def has_replica(broker: Broker) -> bool:
    assert broker._replicas is not None
    return broker._replicas.find(T0) is not None


def in_sync(broker: Broker) -> bool:
    assert broker._replicas is not None
    partition = broker._replicas.find(T0)
    return partition is not None and set(partition.leadership.isr) == {1, 2}


async def test_what_a_broker_lost_while_it_was_gone_is_put_aside_and_its_name_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The partition was moved away and its topic deleted, both without the broker that is down. When it is
    back, its old log is neither the new topic's nor in the new topic's way."""
    async with shared_store(tmp_path, monkeypatch) as store, AsyncExitStack() as stack:
        first, second = cluster_broker(tmp_path / "1", 1), cluster_broker(tmp_path / "2", 2)
        for each in (first, second):
            await each.start()
        stack.push_async_callback(first.stop)
        admin = store.connect()
        await create_topic(admin, "t", Uuid(bytes(range(16))), {0: [1, 2]}, {})
        await eventually(lambda: has_replica(first.broker) and has_replica(second.broker))
        assert (await first.produce("t", b"old")).error_code == 0
        await second.stop()

        member = first.broker._member
        assert member is not None
        assert await member.controller.alter_partition_reassignments({T0: [1]}) == {T0: None}
        await member.topics.delete_topic("t")
        assert directories(tmp_path / "2") == ["t-0"]
        await create_topic(admin, "t", Uuid(bytes(range(1, 17))), {0: [1, 2]}, {})
        await eventually(lambda: has_replica(first.broker))

        await second.start()
        stack.push_async_callback(second.stop)
        await eventually(lambda: has_replica(second.broker) and in_sync(first.broker))
        kept, made = sorted(directories(tmp_path / "2"), key=len, reverse=True)
        assert kept.endswith("-stray")
        assert made == "t-0"
        assert (await first.produce("t", b"new")).error_code == 0
        assert await first.read_all("t") == [b"new"]
