"""Settings in either store: no race loses a change, and none outlives its topic."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.test_coordination import Store, store

from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import change_config, create_topic, read_config
from barnabas.cluster.znodes.layout import ConfigZnode, TopicZnode
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import Uuid

__all__ = ["store"]


@pytest.mark.parametrize("kind", [ConfigZnode.TOPICS, ConfigZnode.BROKERS])
async def test_no_setting_is_lost_when_many_change_one_entity(store: Store, kind: str) -> None:
    sessions = [await store.connect() for _ in range(3)]
    await make_persistent_paths(sessions[0])
    await create_topic(sessions[0], "t", Uuid(bytes(range(16))), {0: [1]}, {})

    async def write(number: int) -> None:
        await change_config(
            sessions[number % 3], kind, "t", lambda present: {**(present or {}), f"key-{number}": "1"}
        )

    await asyncio.gather(*map(write, range(12)))
    assert await read_config(sessions[0], kind, "t") == {f"key-{number}": "1" for number in range(12)}


async def test_a_topic_that_is_gone_gets_no_settings(store: Store) -> None:
    znodes = await store.connect()
    await make_persistent_paths(znodes)
    await create_topic(znodes, "t", Uuid(bytes(range(16))), {0: [1]}, {"retention.ms": "1"})
    await znodes.delete(TopicZnode.path("t"))
    with pytest.raises(UnknownTopicOrPartition):
        await change_config(znodes, ConfigZnode.TOPICS, "t", lambda _: {"retention.ms": "2"})
    assert await read_config(znodes, ConfigZnode.TOPICS, "t") == {"retention.ms": "1"}
