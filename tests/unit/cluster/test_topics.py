from __future__ import annotations

import asyncio

import pytest

from barnabas.cluster.coordination.contract import Create, Delete, Stat
from barnabas.cluster.embedded.session import EmbeddedSession, EmbeddedStore
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import (
    add_partitions,
    allocate_producer_ids,
    change_config,
    create_topic,
    mark_for_deletion,
    read_config,
    read_configs,
    read_topics,
)
from barnabas.cluster.znodes.layout import ConfigZnode, PartitionState, PartitionStateZnode, ProducerIdBlock
from barnabas.core.errors import (
    InvalidPartitions,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import Uuid

TOPIC_ID = Uuid(bytes(range(16)))


def led_by(leader: int) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=0, isr=(leader,), controller_epoch=1)


@pytest.fixture(autouse=True)
async def _paths(znodes: EmbeddedSession) -> None:
    await make_persistent_paths(znodes)
    await znodes.create("/controller_epoch", b"1")


async def create(znodes: EmbeddedSession, topic: str = "t", partitions: int = 2, **config: str) -> None:
    await create_topic(znodes, topic, TOPIC_ID, {n: [1, 2] for n in range(partitions)}, config)


async def test_a_topic_is_made_with_everything_in_one_transaction(znodes: EmbeddedSession) -> None:
    await create(znodes, retention="5")
    zxids = {(await znodes.get(path))[1].czxid for path in ("/brokers/topics/t", "/config/topics/t")}
    assert len(zxids) == 1
    (stored,) = (await read_topics(znodes)).values()
    assert stored.info.topic_id == TOPIC_ID
    assert {number: given.replicas for number, given in stored.info.assignment.items()} == {
        0: (1, 2),
        1: (1, 2),
    }
    assert stored.config == {"retention": "5"}


async def test_a_topic_is_read_with_the_states_that_its_controller_made(znodes: EmbeddedSession) -> None:
    await create(znodes)
    for number in range(2):
        data = PartitionStateZnode.encode(led_by(number))
        await znodes.create(PartitionStateZnode.path("t", number), data, make_parents=True)
    assert (await read_topics(znodes))["t"].states == {0: led_by(0), 1: led_by(1)}


async def test_a_topic_is_made_once(znodes: EmbeddedSession) -> None:
    await create(znodes)
    with pytest.raises(TopicAlreadyExists):
        await create(znodes, cleanup="delete")
    assert await read_config(znodes, "topics", "t") == {}


async def test_a_configuration_left_behind_is_replaced(znodes: EmbeddedSession) -> None:
    await znodes.create("/config/topics/t", ConfigZnode.encode({"old": "1"}), make_parents=True)
    await create(znodes, new="2")
    assert await read_config(znodes, "topics", "t") == {"new": "2"}


async def test_a_topic_without_states_is_left_to_its_controller(znodes: EmbeddedSession) -> None:
    await create_topic(znodes, "t", TOPIC_ID, {0: [1]}, {})
    assert (await read_topics(znodes))["t"].states == {}
    assert await znodes.children("/brokers/topics/t") == []


async def test_partitions_are_added_at_the_end(znodes: EmbeddedSession) -> None:
    await create(znodes)
    grown = await add_partitions(znodes, "t", {2: [2, 1]})
    assert list(grown.assignment) == [0, 1, 2]
    assert (await read_topics(znodes))["t"].info == grown
    with pytest.raises(InvalidPartitions):
        await add_partitions(znodes, "t", {4: [1]})
    with pytest.raises(UnknownTopicOrPartition):
        await add_partitions(znodes, "no", {0: [1]})


async def test_the_name_of_a_topic_is_free_when_it_is_deleted(znodes: EmbeddedSession) -> None:
    await create(znodes)
    await mark_for_deletion(znodes, "t")
    with pytest.raises(TopicAlreadyExists):
        await mark_for_deletion(znodes, "t")
    with pytest.raises(TopicAlreadyExists):
        await create(znodes)
    await znodes.multi([Delete("/admin/delete_topics/t"), Delete("/brokers/topics/t")])
    with pytest.raises(UnknownTopicOrPartition):
        await mark_for_deletion(znodes, "t")
    await create(znodes)


async def test_configurations_are_written_with_a_note(znodes: EmbeddedSession) -> None:
    await change_config(znodes, "brokers", "<default>", lambda _: {"a": "1"})
    await change_config(znodes, "brokers", "3", lambda _: {"b": "2"})
    await change_config(znodes, "brokers", "3", lambda _: {})
    assert await read_configs(znodes, "brokers") == {"<default>": {"a": "1"}, "3": {}}
    notes = await znodes.children("/config/changes")
    assert len(notes) == 3
    data, _ = await znodes.get(f"/config/changes/{notes[0]}")
    assert data == b'{"version":2,"entity_path":"brokers/<default>"}'
    assert await read_config(znodes, "topics", "unknown") == {}


async def test_producer_id_blocks_do_not_overlap(store: EmbeddedStore, znodes: EmbeddedSession) -> None:
    assert await allocate_producer_ids(znodes, 1) == ProducerIdBlock(1, 0, 999)
    blocks = await asyncio.gather(*(allocate_producer_ids(store.connect(), n) for n in range(5)))
    assert sorted(block.first for block in blocks) == [1000, 2000, 3000, 4000, 5000]
    assert {block.last - block.first for block in blocks} == {999}


async def test_a_topic_may_have_five_thousand_partitions(znodes: EmbeddedSession) -> None:
    await create(znodes, "wide", 5_000)
    assert len((await read_topics(znodes))["wide"].info.assignment) == 5_000


async def test_a_topic_of_no_partitions_is_read(znodes: EmbeddedSession) -> None:
    await create(znodes)
    await znodes.multi([Create("/brokers/topics/empty", b'{"version":1,"partitions":{}}')])
    found = await read_topics(znodes)
    assert found["empty"].info.assignment == {}


async def test_a_block_of_producer_ids_that_another_broker_took_first_is_not_handed_out(
    store: EmbeddedStore, znodes: EmbeddedSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store.connect()
    taken: list[ProducerIdBlock] = []
    write = znodes.set

    async def late(path: str, data: bytes, version: int) -> Stat:
        if not taken:
            taken.append(await allocate_producer_ids(other, 2))
        return await write(path, data, version)

    monkeypatch.setattr(znodes, "set", late)
    own = await allocate_producer_ids(znodes, 1)
    assert taken[0].last < own.first
