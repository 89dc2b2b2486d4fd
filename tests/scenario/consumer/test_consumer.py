"""The consumer against a broker: groups of both protocols, positions, commits, seeks, isolation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import pytest

from barnabas.client import (
    Admin,
    ClientClosed,
    ClusterUnreachable,
    CommitFailed,
    CommittedOffset,
    Consumer,
    ConsumerInterceptor,
    DeserializationFailed,
    IllegalState,
    NoCommittedOffset,
    RebalanceListener,
    Record,
    TopicPartition,
)
from barnabas.client.admin.topic_records import delete_records
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.core import transaction_steps
from barnabas.client.membership.classic_protocol import ClassicMember
from barnabas.client.membership.consumer_protocol import ConsumerProtocolMember
from barnabas.core.errors import InvalidGroupId, KafkaError, OffsetOutOfRange, UnreleasedInstanceId
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.builder import BatchBuilder
from tests.scenario.consumer.conftest import PATIENCE_S, Bench, read, settle

GROUPS: Mapping[str, Mapping[str, Any]] = {
    "consumer": {"group_protocol": "consumer"},
    "range": {"group_protocol": "classic", "partition_assignment_strategy": ["range"]},
    "roundrobin": {"group_protocol": "classic", "partition_assignment_strategy": ["roundrobin"]},
    "sticky": {"group_protocol": "classic", "partition_assignment_strategy": ["sticky"]},
    "cooperative": {"group_protocol": "classic", "partition_assignment_strategy": ["cooperative-sticky"]},
}
by_group = pytest.mark.parametrize("how", GROUPS.values(), ids=GROUPS.keys())
both = pytest.mark.parametrize("how", [GROUPS["consumer"], GROUPS["range"]], ids=["consumer", "classic"])


def values(records: Sequence[Record[Any, Any]]) -> list[bytes]:
    return sorted(record.value for record in records)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(first, first + count)]


class Notes(RebalanceListener):
    def __init__(self) -> None:
        self.assigned: list[frozenset[TopicPartition]] = []
        self.revoked: list[frozenset[TopicPartition]] = []
        self.lost: list[frozenset[TopicPartition]] = []

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.assigned.append(partitions)

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.revoked.append(partitions)

    def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.lost.append(partitions)


@by_group
async def test_a_member_reads_everything_and_the_next_one_continues(
    bench: Bench, how: Mapping[str, Any]
) -> None:
    await bench.create()
    await bench.write(numbered(200))
    async with bench.consumer(**how) as consumer:
        assert values(await read(consumer, 200)) == numbered(200)
    await bench.write(numbered(50, 200))
    async with bench.consumer(**how) as consumer:
        assert values(await read(consumer, 50)) == numbered(50, 200)
        assert await consumer.poll(timeout_ms=50) == []


@by_group
async def test_members_share_and_hand_over_without_loss_or_repetition(
    bench: Bench, how: Mapping[str, Any]
) -> None:
    await bench.create()
    notes = Notes()
    async with bench.consumer(**how, listener=notes) as first:
        await settle(first)
        async with bench.consumer(**how) as second:
            await settle(first, second)
            assert not first.assignment & second.assignment
            await bench.write(numbered(100))
            found: list[Record[Any, Any]] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < 100:
                    found += await first.poll(timeout_ms=20)
                    found += await second.poll(timeout_ms=20)
        await settle(first)
        await bench.write(numbered(100, 100))
        found += await read(first, 100)
    assert values(found) == numbered(200)
    assert notes.assigned[0] == frozenset(bench.at(number) for number in range(4))
    assert not notes.lost
    assert notes.revoked


async def test_the_broker_decides_which_protocol_is_used(bench: Bench) -> None:
    await bench.create(1)
    async with bench.consumer() as consumer:
        await settle(consumer, partitions=1)
        assert isinstance(consumer._engine.member, ConsumerProtocolMember)


async def test_an_assignor_of_the_broker_is_chosen_by_its_name(bench: Bench) -> None:
    await bench.create(1)
    for name in ("range", "uniform"):
        group = f"{bench.group}-{name}"
        async with bench.consumer(group=group, group_remote_assignor=name) as consumer:
            await settle(consumer, partitions=1)
            async with Admin(bench.bootstrap) as admin:
                assert (await admin.describe_groups([group]))[group].assignor == name


@pytest.mark.parametrize("excluded", [True, False])
async def test_a_pattern_matches_internal_topics_only_on_request(bench: Bench, excluded: bool) -> None:
    await bench.create(1)
    internal = "__consumer_offsets"
    async with bench.consumer() as member:  # so that the internal topic exists
        await settle(member, partitions=1)
    settings: dict[str, Any] = {"exclude_internal_topics": excluded, "metadata_max_age_ms": 100}
    wanted = {bench.topic} if excluded else {bench.topic, internal}
    async with bench.consumer(topics=(), pattern=f"{bench.topic}|{internal}", **settings) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            while consumer.subscription != wanted:
                await consumer.poll(timeout_ms=20)


async def test_async_iteration_hands_out_in_order_and_commits_what_came_before(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(20))

    async def fail_at_seven() -> None:
        async with bench.consumer() as consumer:
            async for record in consumer:
                assert record.value == b"%05d" % record.offset
                if record.offset == 7:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_at_seven()
    async with bench.consumer() as consumer:
        record = await consumer.get_one()
        assert record.offset == 7, "the record that failed comes again"
        assert (record.key, record.topic, record.partition) == (b"key-7", bench.topic, 0)
        assert record.timestamp_ms > 0


async def test_a_failed_batch_comes_again(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(20))

    async def fail() -> None:
        async with bench.consumer() as consumer:
            await read(consumer, 5)
            assert [record.offset for record in await consumer.poll(max_records=3)] == [5, 6, 7]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with bench.consumer() as consumer:
        assert (await consumer.get_one()).offset == 5


async def test_without_automatic_commits_only_commit_moves_the_group(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    async with bench.consumer(enable_auto_commit=False) as consumer:
        await read(consumer, 4)
        assert await consumer.commit() == {bench.at(): CommittedOffset(4, "", 0)}
        await read(consumer, 4)
        assert await consumer.committed() == {bench.at(): CommittedOffset(4, "", 0)}
    async with bench.consumer(enable_auto_commit=False) as consumer:
        assert (await consumer.get_one()).offset == 4
        await consumer.commit({bench.at(): CommittedOffset(9, "a note")})
        committed = await consumer.committed([bench.at()])
        assert committed == {bench.at(): CommittedOffset(9, "a note")}
        assert await consumer.position(bench.at()) == 5


async def test_offsets_are_committed_in_the_background(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    async with bench.consumer(auto_commit_interval_ms=20) as consumer:
        await read(consumer, 10)
        async with asyncio.timeout(PATIENCE_S):
            while (await consumer.committed())[bench.at()] != CommittedOffset(10, "", 0):
                await consumer.poll(timeout_ms=10)


@both
async def test_a_member_that_stopped_polling_leaves_and_its_commit_is_refused(
    bench: Bench, how: Mapping[str, Any]
) -> None:
    await bench.create(2)
    await bench.write(numbered(10))
    notes = Notes()
    slow = bench.consumer(**how, max_poll_interval_ms=1_000, enable_auto_commit=False, listener=notes)
    async with slow, bench.consumer(**how) as other:
        await read(slow, 1)
        async with asyncio.timeout(PATIENCE_S):
            while len(other.assignment) < 2:
                await other.poll(timeout_ms=20)
        with pytest.raises(CommitFailed):
            await slow.commit()
        assert not notes.lost
        async with asyncio.timeout(PATIENCE_S):
            while not (notes.lost and slow.assignment):
                await slow.poll(timeout_ms=20)
                await other.poll(timeout_ms=20)


@both
async def test_a_static_member_restarts_without_a_rebalance(bench: Bench, how: Mapping[str, Any]) -> None:
    await bench.create()
    notes = Notes()
    async with bench.consumer(**how, group_instance_id="a", listener=notes) as first:
        second = bench.consumer(**how, group_instance_id="b")
        async with second:
            await settle(first, second)
            share = second.assignment
        before = len(notes.assigned)
        async with bench.consumer(**how, group_instance_id="b") as again:
            await settle(first, again)
            assert again.assignment == share
        assert len(notes.assigned) == before


async def test_a_second_instance_of_a_static_member_is_refused(bench: Bench) -> None:
    await bench.create(1)
    async with bench.consumer(group_instance_id="a") as first:
        await settle(first, partitions=1)
        async with bench.consumer(group_instance_id="a") as second:
            with pytest.raises(UnreleasedInstanceId):
                await asyncio.wait_for(second.get_one(), PATIENCE_S)


@both
async def test_a_pattern_finds_topics_that_come_later(bench: Bench, how: Mapping[str, Any]) -> None:
    first, later = f"{bench.topic}-eu", f"{bench.topic}-us"
    await bench.create(1, first)
    await bench.write([b"eu"], topic=first)
    consumer = bench.consumer(**how, topics=(), pattern=f"{bench.topic}-.*", metadata_max_age_ms=100)
    async with consumer:
        assert values(await read(consumer, 1)) == [b"eu"]
        await bench.create(1, later)
        await bench.write([b"us"], topic=later)
        assert values(await read(consumer, 1)) == [b"us"]
        assert consumer.subscription == {first, later}


@both
async def test_a_changed_subscription(bench: Bench, how: Mapping[str, Any]) -> None:
    other = f"{bench.topic}-other"
    await bench.create(1)
    await bench.create(1, other)
    await bench.write([b"one"])
    await bench.write([b"two"], topic=other)
    async with bench.consumer(**how) as consumer:
        assert values(await read(consumer, 1)) == [b"one"]
        await consumer.subscribe([other])
        assert values(await read(consumer, 1)) == [b"two"]
        assert consumer.assignment == {TopicPartition(other, 0)}
        await consumer.unsubscribe()
        assert consumer.assignment == frozenset()
        await consumer.subscribe([bench.topic])
        await bench.write([b"three"])
        assert values(await read(consumer, 1)) == [b"three"]


@both
async def test_partitions_that_are_added_are_read(bench: Bench, how: Mapping[str, Any]) -> None:
    await bench.create(1)
    async with bench.consumer(**how, metadata_max_age_ms=100) as consumer:
        await settle(consumer, partitions=1)
        await TopicAdmin(bench.cluster).add_partitions(bench.topic, 3)
        await settle(consumer, partitions=3)


# --- without a group ---


async def test_assigned_partitions_seeks_and_bounds(bench: Bench) -> None:
    await bench.create(2)
    await bench.write(numbered(5), partition=0, timestamp_ms=1_000)
    await bench.write(numbered(5, 5), partition=0, timestamp_ms=2_000)
    async with bench.consumer(group=None, topics=()) as consumer:
        await consumer.assign([bench.at()])
        assert values(await read(consumer, 10)) == numbered(10)
        consumer.seek(bench.at(), 3)
        assert await consumer.position(bench.at()) == 3
        assert (await consumer.get_one()).offset == 3
        assert await consumer.lag(bench.at()) == 6
        await consumer.seek_to_time(1_500)
        assert (await consumer.get_one()).offset == 5
        await consumer.seek_to_end()
        assert await consumer.position(bench.at()) == 10
        await consumer.seek_to_time(9_999_999_999_999)
        assert await consumer.position(bench.at()) == 10
        await consumer.seek_to_beginning(bench.at())
        assert (await consumer.get_one()).offset == 0
        both_ends = [bench.at(0), bench.at(1)]
        assert await consumer.end_offsets(both_ends) == {bench.at(0): 10, bench.at(1): 0}
        assert await consumer.beginning_offsets(both_ends) == dict.fromkeys(both_ends, 0)
        found = await consumer.offsets_for_times({bench.at(0): 1_001, bench.at(1): 0})
        assert found[bench.at(0)] == (5, 2_000)
        assert found[bench.at(1)] is None
        assert await consumer.partitions_for(bench.topic) == both_ends
        assert bench.topic in await consumer.topics()
        with pytest.raises(InvalidGroupId):
            await consumer.commit()
        with pytest.raises(InvalidGroupId):
            await consumer.subscribe([bench.topic])
        with pytest.raises(IllegalState, match="not assigned"):
            consumer.seek(bench.at(1), 0)


async def test_a_seek_inside_async_for(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    offsets = []
    async with bench.consumer() as consumer:
        async for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == 3:
                consumer.seek(bench.at(), 8)
            if record.offset == 9:
                break
    assert offsets == [0, 1, 2, 8, 9]


async def test_paused_partitions_give_nothing_until_they_are_resumed(bench: Bench) -> None:
    await bench.create(2)
    async with bench.consumer() as consumer:
        await settle(consumer, partitions=2)
        consumer.pause(bench.at(0))
        await bench.write(numbered(5), partition=0)
        await bench.write(numbered(5, 5), partition=1)
        assert values(await read(consumer, 5)) == numbered(5, 5)
        assert await consumer.poll(timeout_ms=50) == []
        assert consumer.paused == {bench.at(0)}
        consumer.resume(bench.at(0))
        assert values(await read(consumer, 5)) == numbered(5)


async def test_a_position_below_the_log_is_reset_or_raised(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    await delete_records(bench.cluster, bench.topic, {0: 6})
    async with bench.consumer(group=None, topics=()) as consumer:
        await consumer.assign([bench.at()])
        await read(consumer, 4)
        consumer.seek(bench.at(), 2)
        assert (await consumer.get_one()).offset == 6
    async with bench.consumer(group=None, topics=(), auto_offset_reset="none") as consumer:
        await consumer.assign([bench.at()])
        consumer.seek(bench.at(), 2)
        with pytest.raises(OffsetOutOfRange):
            await asyncio.wait_for(consumer.get_one(), PATIENCE_S)
        consumer.seek(bench.at(), 7)
        assert (await asyncio.wait_for(consumer.get_one(), PATIENCE_S)).offset == 7


async def test_where_a_new_group_begins(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3), timestamp_ms=1_000)
    now_ms = bench.cluster.clock.now_ms()
    await bench.write(numbered(2, 3), timestamp_ms=now_ms)
    async with bench.consumer(group="g1", auto_offset_reset="by_duration:PT1H") as consumer:
        assert (await consumer.get_one()).offset == 3
    async with bench.consumer(group="g2", auto_offset_reset="latest") as consumer:
        await settle(consumer, partitions=1)
        assert await consumer.position(bench.at()) == 5
    async with bench.consumer(group="g3", auto_offset_reset="none") as consumer:
        with pytest.raises(NoCommittedOffset):
            await asyncio.wait_for(consumer.get_one(), PATIENCE_S)


async def test_read_committed_sees_no_open_and_no_aborted_transaction(bench: Bench) -> None:
    await bench.create(1)
    cluster, state = bench.cluster, bench.cluster.state

    async def write(txn: transaction_steps.Transaction, value: bytes, sequence: int) -> None:
        await cluster.run(transaction_steps.add_partitions(state, txn, [bench.at()]))
        builder = BatchBuilder(
            producer_id=txn.producer_id,
            producer_epoch=txn.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        builder.append(None, value, (), 1)
        rows = [PartitionProduceData(index=0, records=bytes(builder.build()))]
        request = ProduceRequest(
            transactional_id=txn.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=bench.topic, partition_data=rows)],
        )
        leader = (await cluster.topic(bench.topic)).partitions[0].leader_id
        channel = await cluster.channel_to(leader)
        answer = await channel.send(request, ProduceResponse, version_max=11)
        assert answer.responses[0].partition_responses[0].error_code == 0

    name = f"txn-{bench.topic}"
    txn = await cluster.run(transaction_steps.begin(state, name, 60_000))
    await write(txn, b"aborted", 0)
    await cluster.run(transaction_steps.end(state, txn, commit=False))
    txn = await cluster.run(transaction_steps.begin(state, name, 60_000))
    await write(txn, b"committed", 0)
    await cluster.run(transaction_steps.end(state, txn, commit=True))
    txn = await cluster.run(transaction_steps.begin(state, name, 60_000))
    await write(txn, b"open", 0)
    settings = {"group": None, "topics": ()}
    async with bench.consumer(**settings, isolation_level="read_committed") as consumer:
        await consumer.assign([bench.at()])
        assert values(await read(consumer, 1)) == [b"committed"]
        assert await consumer.poll(timeout_ms=100) == []
        assert await consumer.lag(bench.at()) == 0
    async with bench.consumer(**settings) as consumer:
        await consumer.assign([bench.at()])
        assert values(await read(consumer, 3)) == [b"aborted", b"committed", b"open"]
    await cluster.run(transaction_steps.end(state, txn, commit=False))


async def test_large_topics_are_read_within_the_memory_bound(bench: Bench) -> None:
    await bench.create(2)
    size = 2_000
    await bench.write([b"x" * size] * 3_000)
    bound = 600_000
    consumer = bench.consumer(
        fetch_buffer_bytes=bound, max_partition_fetch_bytes=200_000, max_poll_records=50
    )
    count = 0
    async with consumer:
        while count < 3_000:
            count += len(await consumer.poll(timeout_ms=1_000))
            assert consumer._engine.positions.buffered_bytes <= bound + 300_000, "a batch may exceed it"


# --- applications' parts ---


async def test_deserializers_and_records_that_break_them(bench: Bench) -> None:
    await bench.create(1)
    await bench.write([b'{"a": 1}', b"broken", b'{"a": 3}'])
    async with bench.consumer(key_deserializer="string", value_deserializer="json") as consumer:
        record = await consumer.get_one()
        assert (record.key, record.value) == ("key-0", {"a": 1})
        with pytest.raises(DeserializationFailed, match="offset 1"):
            await consumer.get_one()
        consumer.seek(bench.at(), 2)
        assert (await consumer.get_one()).value == {"a": 3}


class Masking(ConsumerInterceptor):
    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        return [record._replace(value=b"***") for record in records]

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed.append(dict(offsets))


async def test_interceptors_see_records_and_commits(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(3))
    masking = Masking()
    async with bench.consumer(interceptors=[masking], enable_auto_commit=False) as consumer:
        assert values(await read(consumer, 3)) == [b"***"] * 3
        await consumer.commit()
    assert masking.committed == [{bench.at(): 3}]


async def test_records_by_partition(bench: Bench) -> None:
    await bench.create(2)
    await bench.write(numbered(3), partition=0)
    await bench.write(numbered(3, 3), partition=1)
    found: dict[TopicPartition, list[bytes]] = {}
    async with bench.consumer() as consumer, asyncio.timeout(PATIENCE_S):
        while sum(map(len, found.values())) < 6:
            for at, records in (await consumer.get_many(timeout_ms=100)).items():
                found.setdefault(at, []).extend(record.value for record in records)
    assert found == {bench.at(0): numbered(3), bench.at(1): numbered(3, 3)}


# --- the end ---


async def test_a_closed_consumer_leaves_no_task_and_no_socket(bench: Bench) -> None:
    await bench.create(2)
    await bench.write(numbered(10))
    me = psutil.Process()
    tasks, sockets = asyncio.all_tasks(), len(me.net_connections())
    for how in GROUPS.values():
        consumer = bench.consumer(**how, group=f"{bench.group}-{random.random()}")
        async with consumer:
            await read(consumer, 10)
        with pytest.raises(ClientClosed):
            await consumer.poll()
    assert asyncio.all_tasks() == tasks
    # The broker runs in this process: its ends of the connections go a moment later.
    async with asyncio.timeout(PATIENCE_S):
        while len(me.net_connections()) > sockets:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_closing_during_a_join_does_not_wait_for_it(bench: Bench) -> None:
    await bench.create(1)
    how = {**GROUPS["range"], "max_poll_interval_ms": 300_000}
    async with bench.consumer(**how) as first:
        await settle(first, partitions=1)
        # The first member does not poll, so that the second one waits in JoinGroup.
        second = bench.consumer(**how)
        await second.start()
        assert await second.poll(timeout_ms=200) == []
        member = second._engine.member
        assert isinstance(member, ClassicMember)
        async with asyncio.timeout(PATIENCE_S):
            await second.close()
        await settle(first, partitions=1)


async def test_no_broker_and_a_wrong_setting(bench: Bench) -> None:
    with pytest.raises(ClusterUnreachable):
        async with Consumer("127.0.0.1:1", group="g", topics=["t"]):
            pass
    with pytest.raises(KafkaError, match="fetch"):
        Consumer("127.0.0.1:1", fetch_min_byte=1)


async def test_async_iteration_goes_on_when_a_full_buffer_was_drained(bench: Bench) -> None:
    await bench.create(1)
    await bench.write([b"x" * 1_000] * 1_000)
    count = 0
    async with bench.consumer(max_partition_fetch_bytes=50_000) as consumer, asyncio.timeout(PATIENCE_S):
        async for _ in consumer:
            count += 1
            if count == 1_000:
                break
