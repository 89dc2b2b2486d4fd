"""Transactions request by request through a real broker: responses, refusals and their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import name_of
from barnabas.core.limits import MARKERS_UNWRITTEN_MAX
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicState as TopicToDelete
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.records.batch import iterate_batches
from barnabas.records.record import iterate_records
from tests.support.in_process import InProcessBroker, in_process_broker
from tests.support.transactions import GROUP, HandProducer
from tests.support.wire import content

SETTINGS: dict[str, Any] = {
    "transaction_state_log_num_partitions": 2,
    "offsets_topic_num_partitions": 2,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 50,
}
DEADLINE_S = 60.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path, **SETTINGS) as started:
        assert await started.create_topic("topic", 2) == 0
        yield started


@pytest.fixture
async def producer(broker: InProcessBroker) -> HandProducer:
    found = HandProducer(broker.channel)
    assert await found.find() == "NONE"
    assert await found.init() == "NONE"
    return found


async def committed(broker: InProcessBroker, topic: str = "topic", partition: int = 0) -> list[bytes]:
    """Records that a read_committed consumer sees, as a client computes them."""
    values: list[bytes] = []
    offset = 0
    while True:
        part = await broker.fetch(topic, offset, partition=partition, max_wait_ms=0, isolation_level=1)
        if offset >= part.last_stable_offset:
            return values
        aborted = sorted((each.first_offset, each.producer_id) for each in part.aborted_transactions or ())
        hidden: set[int] = set()
        for batch in iterate_batches(content(part.records)):
            offset = batch.next_offset
            while aborted and aborted[0][0] <= batch.last_offset:
                hidden.add(aborted.pop(0)[1])
            if batch.is_control:
                hidden.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in hidden):
                values += [record.value or b"" for record in iterate_records(batch)]


async def last_stable_offset(broker: InProcessBroker, partition: int = 0) -> int:
    part = await broker.fetch("topic", 0, partition=partition, max_wait_ms=0, isolation_level=1)
    return part.last_stable_offset


async def state_of(broker: InProcessBroker, transactional_id: str = "tx") -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = await broker.ask(request, DescribeTransactionsResponse)
    return answer.transaction_states[0].transaction_state


# The topic


async def test_the_coordinators_topic_is_made_for_the_brokers_that_live(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name="__transaction_state")]
    )
    (result,) = (await broker.ask(request, DescribeConfigsResponse)).results
    values = {each.name: each.value for each in result.configs}
    assert values["cleanup.policy"] == "compact"
    assert values["min.insync.replicas"] == "1"
    assert values["compression.type"] == "uncompressed"
    topic = await broker.metadata("__transaction_state")
    assert len(topic.partitions) == 2
    assert topic.is_internal


# Writing


@pytest.mark.parametrize(
    ("version", "expected"),
    [(3, "INVALID_TXN_STATE"), (10, "INVALID_TXN_STATE"), (11, "TRANSACTION_ABORTABLE")],
)
async def test_a_write_outside_of_a_transaction_is_refused(
    broker: InProcessBroker, producer: HandProducer, version: int, expected: str
) -> None:
    assert await producer.produce("topic", b"stray", version=version) == expected
    assert await producer.add("topic", 0) == "NONE"
    assert await producer.produce("topic", b"stray", partition=1, version=version) == expected
    assert await last_stable_offset(broker, 1) == 0
    assert await broker.read_all("topic", 1) == []


@pytest.mark.parametrize("version", [11, 12])
async def test_a_write_into_the_open_transaction_of_another_producer_is_refused(
    broker: InProcessBroker, producer: HandProducer, version: int
) -> None:
    """The right to a transactional id is no right to the producer id of another."""
    if version < 12:
        assert await producer.add("topic") == "NONE"
    assert await producer.produce("topic", b"first", version=version) == "NONE"
    intruder = producer.clone()
    intruder.transactional_id = "mine"
    intruder._sequences = dict(producer._sequences)
    assert await intruder.init() == "NONE"
    intruder.id, intruder.epoch = producer.id, producer.epoch
    refused = await intruder.produce("topic", b"planted", version=version)
    assert refused == "INVALID_PRODUCER_ID_MAPPING"
    assert await producer.produce("topic", b"second", version=version) == "NONE"
    assert await producer.end(commit=True, version=5 if version == 12 else 4) == "NONE"
    assert await committed(broker) == [b"first", b"second"]


async def test_a_late_write_opens_no_transaction(broker: InProcessBroker, producer: HandProducer) -> None:
    await producer.add("topic")
    assert await producer.produce("topic", b"kept") == "NONE"
    assert await producer.end(commit=True) == "NONE"
    assert await producer.produce("topic", b"late", version=10) == "INVALID_TXN_STATE"
    assert await committed(broker) == [b"kept"]
    assert await last_stable_offset(broker) == 2


async def test_a_write_of_a_fenced_producer_is_refused(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    zombie = producer.clone()
    await producer.init()
    assert (producer.id, producer.epoch) == (zombie.id, 1)
    await producer.add("topic")
    assert await producer.produce("topic", b"kept") == "NONE"
    assert await zombie.produce("topic", b"lost") == "INVALID_PRODUCER_EPOCH"
    assert await zombie.produce("topic", b"lost", partition=1) == "INVALID_PRODUCER_EPOCH"
    stranger = HandProducer(broker.channel, "tx", 999, 0)
    assert await stranger.produce("topic", b"lost") == "INVALID_PRODUCER_ID_MAPPING"
    nobody = HandProducer(broker.channel, "nobody", 999, 0)
    assert await nobody.produce("topic", b"lost") == "INVALID_PRODUCER_ID_MAPPING"
    assert await producer.end(commit=True) == "NONE"
    assert await committed(broker) == [b"kept"]


async def test_unverified_writes_are_taken_when_verification_is_off(tmp_path: Path) -> None:
    async with in_process_broker(
        tmp_path, transaction_partition_verification_enable="false", **SETTINGS
    ) as broker:
        await broker.create_topic("topic")
        producer = HandProducer(broker.channel)
        await producer.find()
        await producer.init()
        assert await producer.produce("topic", b"hangs") == "NONE"
        assert await last_stable_offset(broker) == 0


async def test_partitions_that_do_not_exist_are_not_added(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    assert await producer.add("topic", 0, 7) == "OPERATION_NOT_ATTEMPTED|UNKNOWN_TOPIC_OR_PARTITION"
    assert await producer.add("nowhere", 0) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await state_of(broker) == "Empty"


# Words by version


@pytest.mark.parametrize("version", range(6))
async def test_every_version_hears_of_fencing_in_its_own_words(
    broker: InProcessBroker, producer: HandProducer, version: int
) -> None:
    zombie = producer.clone()
    await producer.init()
    old, new = "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"
    assert await zombie.end(commit=True, version=version) == (new if version >= 2 else old)
    if version <= 3:
        assert await zombie.add("topic", version=version) == (new if version >= 2 else old)
    if version <= 4:
        assert await zombie.add_offsets("g", version=version) == (new if version >= 2 else old)
    assert await zombie.commit_offset("g", "topic", 1, version=version) == old


@pytest.mark.parametrize("version", range(6))
async def test_every_version_initializes(
    broker: InProcessBroker, producer: HandProducer, version: int
) -> None:
    assert await producer.init(version=version) == "NONE"
    assert producer.epoch == 1
    assert await producer.init(timeout_ms=900_001, version=version) == "INVALID_TRANSACTION_TIMEOUT"


@pytest.mark.parametrize("verify_only", [True, False])
@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_ask_for_many_transactions_at_once(
    broker: InProcessBroker, producer: HandProducer, version: int, verify_only: bool
) -> None:
    await producer.add("topic", 0)
    topics = [AddPartitionsToTxnTopic(name="topic", partitions=[0, 1])]
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        for name in ("tx", "nobody", "")
    ]
    answer = await broker.ask(
        AddPartitionsToTxnRequest(transactions=transactions), AddPartitionsToTxnResponse, version
    )
    codes = {
        result.transactional_id: [
            name_of(each.partition_error_code) for each in result.topic_results[0].results_by_partition
        ]
        for result in answer.results_by_transaction
    }
    assert codes == {
        "tx": ["NONE", "TRANSACTION_ABORTABLE" if verify_only else "NONE"],
        "nobody": ["INVALID_PRODUCER_ID_MAPPING"] * 2,
        "": ["INVALID_REQUEST"] * 2,
    }


async def test_of_a_transactional_id_that_is_named_twice_the_last_mention_counts(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    await producer.add("topic", 0)
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id="tx",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=True,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=[0])],
        )
        for name in ("nowhere", "topic")
    ]
    answer = await broker.ask(
        AddPartitionsToTxnRequest(transactions=transactions), AddPartitionsToTxnResponse, 5
    )
    (result,) = answer.results_by_transaction
    (topic,) = result.topic_results
    assert (topic.name, topic.results_by_partition[0].partition_error_code) == ("topic", 0)


# Offsets


async def fetch_offset(broker: InProcessBroker, *, require_stable: bool) -> tuple[str, int]:
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="topic", partition_indexes=[0])],
        require_stable=require_stable,
    )
    answer = await broker.ask(request, OffsetFetchResponse, 7)
    (partition,) = answer.topics[0].partitions
    return name_of(partition.error_code), partition.committed_offset


@pytest.mark.parametrize("commit", [True, False])
async def test_staged_offsets_count_with_the_commit(
    broker: InProcessBroker, producer: HandProducer, commit: bool
) -> None:
    assert await producer.find(GROUP, "g") == "NONE"
    assert await producer.commit_offset("g", "topic", 5, version=3) == "INVALID_TXN_STATE"
    assert await producer.commit_offset("g", "topic", 5, version=4) == "TRANSACTION_ABORTABLE"
    assert await producer.add_offsets("g") == "NONE"
    assert await producer.commit_offset("g", "nowhere", 5) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert await producer.commit_offset("g", "topic", 5) == "NONE"
    assert await fetch_offset(broker, require_stable=True) == ("UNSTABLE_OFFSET_COMMIT", -1)
    assert await fetch_offset(broker, require_stable=False) == ("NONE", -1)
    assert await producer.end(commit=commit) == "NONE"
    assert await fetch_offset(broker, require_stable=True) == ("NONE", 5 if commit else -1)
    assert await producer.commit_offset("g", "topic", 6) == "TRANSACTION_ABORTABLE", "it comes too late"
    assert await fetch_offset(broker, require_stable=True) == ("NONE", 5 if commit else -1)


# Transaction version 2


async def test_writes_and_offsets_join_the_transaction_by_themselves(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    assert await producer.find(GROUP, "g") == "NONE"
    for number in range(3):
        assert producer.epoch == number
        assert await producer.produce("topic", b"%d" % number, version=12) == "NONE"
        assert await producer.produce("topic", b"%d" % number, partition=1, version=12) == "NONE"
        assert await producer.commit_offset("g", "topic", number, version=5) == "NONE"
        assert await committed(broker) == [b"0", b"1", b"2"][:number]
        assert await producer.end(commit=True, version=5) == "NONE"
    assert await committed(broker) == await committed(broker, partition=1) == [b"0", b"1", b"2"]
    assert await fetch_offset(broker, require_stable=True) == ("NONE", 2)


async def test_nothing_late_touches_the_next_transaction(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    late = producer.clone()
    assert await producer.produce("topic", b"first", version=12) == "NONE"
    assert await producer.end(commit=True, version=5) == "NONE"
    assert await producer.produce("topic", b"second", version=12) == "NONE"
    late._sequences[("topic", 0, 0)] = 1
    assert await late.produce("topic", b"late", version=12) == "INVALID_PRODUCER_EPOCH"
    assert await late.commit_offset("g", "topic", 1, version=5) == "INVALID_PRODUCER_EPOCH"
    assert await late.end(commit=False, version=5) == "PRODUCER_FENCED"
    marker = marker_of(producer.id, producer.epoch, commit=True)
    assert await write_marker(broker, marker) == "INVALID_PRODUCER_EPOCH"
    assert await write_marker(broker, marker_of(producer.id, 0, commit=False)) == "INVALID_PRODUCER_EPOCH"
    assert await committed(broker) == [b"first"]
    assert await producer.end(commit=True, version=5) == "NONE"
    assert await committed(broker) == [b"first", b"second"]


async def test_writes_that_wait_for_the_coordinator_keep_their_order(tmp_path: Path) -> None:
    """With every append flushed, joining the transaction waits for the disk; what was sent after the
    first write must not overtake it, and the bytes that wait must not change."""
    async with in_process_broker(tmp_path, log_flush_interval_messages=1, **SETTINGS) as broker:
        await broker.create_topic("topic")
        producer = HandProducer(broker.channel)
        await producer.find()
        await producer.init()
        for turn in range(3):
            values = [b"%d-%d %s" % (turn, number, b"." * 3_000) for number in range(5)]
            sent = [
                broker.channel.send(producer.produce_request("topic", value), ProduceResponse, version_max=12)
                for value in values
            ]
            answers = await asyncio.gather(*sent)
            codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
            assert codes == [0] * 5
            assert (await committed(broker))[-5:] != values
            assert await producer.end(commit=True, version=5) == "NONE"
            await until_stable(broker)
            assert (await committed(broker))[-5:] == values


async def until_stable(broker: InProcessBroker) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (  # noqa: ASYNC110 - the other side of a socket has no event
            part := await broker.fetch("topic", 0, max_wait_ms=0)
        ).high_watermark != part.last_stable_offset:
            await asyncio.sleep(0.01)


async def until_offset(broker: InProcessBroker, offset: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await fetch_offset(broker, require_stable=True) != ("NONE", offset):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_state(broker: InProcessBroker, state: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await state_of(broker) != state:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def delete_topic(broker: InProcessBroker, name: str) -> None:
    request = DeleteTopicsRequest(topics=[TopicToDelete(name=name)], timeout_ms=30_000)
    assert (await broker.ask(request, DeleteTopicsResponse)).responses[0].error_code == 0


# Ends that nobody asked for


async def test_a_transaction_that_takes_too_long_lets_readers_go_on(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    assert await producer.init(timeout_ms=200) == "NONE"
    await producer.add("topic")
    assert await producer.produce("topic", b"slow") == "NONE"
    assert await last_stable_offset(broker) == 0
    await until_stable(broker)
    assert await committed(broker) == []
    assert await producer.produce("topic", b"more") == "INVALID_PRODUCER_EPOCH"
    assert await producer.end(commit=True) == "PRODUCER_FENCED"


async def test_a_topic_that_is_deleted_does_not_keep_a_transaction_open(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    await broker.create_topic("doomed")
    await producer.add("doomed")
    await producer.add("topic")
    assert await producer.produce("doomed", b"x") == "NONE"
    assert await producer.produce("topic", b"x") == "NONE"
    await delete_topic(broker, "doomed")
    assert await producer.end(commit=True) == "NONE"
    await until_state(broker, "CompleteCommit")
    assert await committed(broker) == [b"x"]


@pytest.mark.parametrize(("former", "later"), [(2, 2), (2, 1)])
async def test_a_topic_that_is_made_again_does_not_keep_a_transaction_open(
    broker: InProcessBroker, producer: HandProducer, former: int, later: int
) -> None:
    """Partitions of the same numbers get a marker, though they hold no record of the transaction. A partition
    that no longer exists needs no marker."""
    await broker.create_topic("doomed", former)
    await producer.add("doomed", 0, 1)
    assert await producer.produce("doomed", b"x", partition=0) == "NONE"
    assert await producer.produce("doomed", b"x", partition=1) == "NONE"
    await delete_topic(broker, "doomed")
    await broker.create_topic("doomed", later)
    assert await producer.produce("doomed", b"again") == "NONE"
    assert await producer.end(commit=True) == "NONE"
    await until_state(broker, "CompleteCommit")
    assert await committed(broker, "doomed") == [b"again"]
    assert await producer.add("doomed") == "NONE", "the next transaction may begin"


def marker_of(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name="topic", partition_indexes=[0])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=2,
    )


async def write_marker(broker: InProcessBroker, marker: WritableTxnMarker, version: int = 2) -> str:
    answer = await broker.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, version)
    return name_of(answer.markers[0].topics[0].partitions[0].error_code)


async def test_a_request_of_very_many_markers_is_answered_in_their_order(broker: InProcessBroker) -> None:
    count = MARKERS_UNWRITTEN_MAX + 5
    markers = [
        WritableTxnMarker(
            producer_id=number,
            topics=[
                WritableTxnMarkerTopic(name="topic" if number % 2 else "nowhere", partition_indexes=[0, 0])
            ],
        )
        for number in range(count)
    ]
    answer = await broker.ask(WriteTxnMarkersRequest(markers=markers), WriteTxnMarkersResponse, 2)
    assert [each.producer_id for each in answer.markers] == list(range(count))
    codes = [name_of(each.topics[0].partitions[0].error_code) for each in answer.markers[:2]]
    assert codes == ["UNKNOWN_TOPIC_OR_PARTITION", "NONE"]
    assert await last_stable_offset(broker) == count // 2, "a partition that is named twice gets one marker"


async def active_producers(broker: InProcessBroker) -> list[ProducerState]:
    request = DescribeProducersRequest(topics=[TopicRequest(name="topic", partition_indexes=[0])])
    answer = await broker.ask(request, DescribeProducersResponse)
    return answer.topics[0].partitions[0].active_producers


@pytest.mark.parametrize("version", [1, 2])
async def test_a_hanging_transaction_is_found_and_aborted(tmp_path: Path, version: int) -> None:
    async with in_process_broker(
        tmp_path, transaction_partition_verification_enable="false", **SETTINGS
    ) as broker:
        await broker.create_topic("topic")
        hangs = HandProducer(broker.channel, "tx", 4_711, 3)
        await hangs.produce("topic", b"x", b"y")
        (found,) = await active_producers(broker)
        assert (found.producer_id, found.producer_epoch, found.current_txn_start_offset) == (4_711, 3, 0)
        marker = marker_of(found.producer_id, found.producer_epoch, commit=False)
        marker.transaction_version = 0
        assert await write_marker(broker, marker, version) == "NONE"
        assert await last_stable_offset(broker) == 3
        assert await committed(broker) == []
        marker.topics[0].name = "nowhere"
        assert await write_marker(broker, marker, version) == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_a_marker_of_a_previous_coordinator_is_refused(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    await producer.add("topic")
    await producer.produce("topic", b"x")
    marker = marker_of(producer.id, producer.epoch, commit=False, coordinator_epoch=7)
    marker.transaction_version = 0
    assert await write_marker(broker, marker) == "NONE"
    marker.coordinator_epoch = 6
    assert await write_marker(broker, marker) == "TRANSACTION_COORDINATOR_FENCED"


# Restarts


async def test_an_open_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, **SETTINGS) as broker:
        await broker.create_topic("topic", 2)
        producer = HandProducer(broker.channel)
        await producer.find()
        await producer.find(GROUP, "g")
        await producer.init()
        await producer.add("topic")
        await producer.add_offsets("g")
        assert await producer.produce("topic", b"before") == "NONE"
        assert await producer.commit_offset("g", "topic", 9) == "NONE"
    async with in_process_broker(tmp_path, **SETTINGS) as broker:
        producer.channel = broker.channel
        async with asyncio.timeout(DEADLINE_S):
            while (code := await producer.produce("topic", b"after")) != "NONE":
                assert code == "NOT_ENOUGH_REPLICAS"
                producer._sequences[("topic", 0, 0)] -= 1
        assert await committed(broker) == []
        assert await producer.end(commit=True) == "NONE"
        await until_offset(broker, 9)
        assert await committed(broker) == [b"before", b"after"]
