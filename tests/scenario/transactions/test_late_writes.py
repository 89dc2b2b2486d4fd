"""Late transactional writes: the marker is already in the log, or on its way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.coordinator.transaction.markers.local import LocalMarkers
from barnabas.core.errors import CoordinatorNotAvailable, NotLeaderOrFollower, name_of
from barnabas.core.scheduler import BoundedBackground
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.records.builder import build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.storage.producers.append_checks import AppendOrigin
from tests.scenario.transactions.test_transactional_requests import (
    DEADLINE_S,
    SETTINGS,
    committed,
    fetch_offset,
    marker_of,
    state_of,
    until_state,
    write_marker,
)
from tests.support.background import ManualBackground
from tests.support.in_process import (
    BY_NAME_PRODUCE,
    InProcessBroker,
    in_process_broker,
    produce_request,
)
from tests.support.transactions import GROUP, HandProducer

V1_PRODUCE, V2_PRODUCE = 11, 12
V1_END, V2_END = 4, 5


class Held:
    """Answers that are on their way for as long as a test wants."""

    def __init__(self) -> None:
        self.is_holding = False
        self._answers: list[Callable[[], None]] = []
        self._came = asyncio.Event()

    def hold(self, answer: Callable[..., None]) -> Callable[..., None]:
        if not self.is_holding:
            return answer

        def later(*told: Any) -> None:
            self._answers.append(lambda: answer(*told))
            self._came.set()

        return later

    async def until_held(self, count: int = 1) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(self._answers) < count:
                self._came.clear()
                await self._came.wait()

    def release(self) -> None:
        self.is_holding = False
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()


@pytest.fixture
def coordinator_answers(monkeypatch: pytest.MonkeyPatch) -> Held:
    """The coordinator's answers to a leader that asks before the first write."""
    held = Held()
    verify, add = TransactionCoordinator.verify, TransactionCoordinator.add_partitions

    def slow_verify(self: Any, name: str, producer: Any, partitions: Any, done: Any, refuse: Any) -> None:
        verify(self, name, producer, partitions, held.hold(done), refuse)

    def slow_add(self: Any, name: str, producer: Any, partitions: Any, done: Any, **options: Any) -> None:
        add(self, name, producer, partitions, held.hold(done), **options)

    monkeypatch.setattr(TransactionCoordinator, "verify", slow_verify)
    monkeypatch.setattr(TransactionCoordinator, "add_partitions", slow_add)
    return held


@pytest.fixture
def markers(monkeypatch: pytest.MonkeyPatch) -> Held:
    """The markers of the coordinator, before they are written."""
    held = Held()
    write = LocalMarkers.write

    def slow_write(self: Any, marker: Any, partitions: Any, done: Any) -> None:
        held.hold(lambda: write(self, marker, partitions, done))()

    monkeypatch.setattr(LocalMarkers, "write", slow_write)
    return held


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path, **SETTINGS) as started:
        assert await started.create_topic("topic", 2) == 0
        yield started


@pytest.fixture
async def producer(broker: InProcessBroker) -> HandProducer:
    found = HandProducer(broker.channel)
    assert await found.find() == "NONE"
    assert await found.find(GROUP, "g") == "NONE"
    assert await found.init() == "NONE"
    return found


@pytest.fixture
async def late(broker: InProcessBroker, producer: HandProducer) -> AsyncIterator[HandProducer]:
    """The same producer on a connection of its own, whose requests wait there."""
    channel = await Channel.connect(broker.address)
    try:
        yield HandProducer(channel, producer.transactional_id, producer.id, producer.epoch)
    finally:
        channel.close()


async def is_all_decided(broker: InProcessBroker) -> bool:
    part = await broker.fetch("topic", 0, max_wait_ms=0, isolation_level=1)
    return bool(part.last_stable_offset == part.high_watermark)


@pytest.mark.parametrize("version", [3, V1_PRODUCE])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_write_that_was_verified_before_the_end_comes_too_late_after_it(
    broker: InProcessBroker,
    producer: HandProducer,
    late: HandProducer,
    coordinator_answers: Held,
    commit: bool,
    version: int,
) -> None:
    assert await producer.add("topic") == "NONE"
    coordinator_answers.is_holding = True
    writing = asyncio.create_task(late.produce("topic", b"late", version=version))
    await coordinator_answers.until_held()
    coordinator_answers.is_holding = False
    assert await producer.end(commit=commit, version=V1_END) == "NONE"
    await until_state(broker, "CompleteCommit" if commit else "CompleteAbort")
    coordinator_answers.release()
    refusal = "TRANSACTION_ABORTABLE" if version == V1_PRODUCE else "INVALID_TXN_STATE"
    assert await writing == refusal
    assert await is_all_decided(broker), "a transaction is open that nobody will end"
    assert await committed(broker) == []


def to_both(producer: HandProducer, first: bytes, second: bytes) -> ProduceRequest:
    request = producer.produce_request("topic", first)
    request.topic_data += producer.produce_request("topic", second, partition=1).topic_data
    return request


async def test_what_waits_beside_an_open_transaction_comes_too_late_with_it(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer, coordinator_answers: Held
) -> None:
    """The partition with the open transaction needs no verification, but the request waits as a whole."""
    assert await producer.add("topic", 0, 1) == "NONE"
    assert await late.produce("topic", b"in time") == "NONE"
    coordinator_answers.is_holding = True
    request = to_both(late, b"late", b"late")
    writing = asyncio.create_task(late.channel.send(request, ProduceResponse, version_max=V1_PRODUCE))
    await coordinator_answers.until_held()
    coordinator_answers.is_holding = False
    assert await producer.end(commit=True, version=V1_END) == "NONE"
    await until_state(broker, "CompleteCommit")
    coordinator_answers.release()
    codes = [each.partition_responses[0].error_code for each in (await writing).responses]
    assert [name_of(code) for code in codes] == ["TRANSACTION_ABORTABLE"] * 2
    for partition in (0, 1):
        part = await broker.fetch("topic", 0, partition=partition, max_wait_ms=0, isolation_level=1)
        assert part.last_stable_offset == part.high_watermark
    assert await committed(broker) == [b"in time"]


def replicas_of(broker: InProcessBroker) -> ReplicaManager:
    replicas = broker.broker._replicas
    assert replicas is not None
    return replicas


async def test_a_partition_that_is_led_here_only_since_the_request_came_is_not_written_to(
    broker: InProcessBroker,
    producer: HandProducer,
    late: HandProducer,
    coordinator_answers: Held,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await producer.add("topic", 0, 1) == "NONE"
    replicas, is_led = replicas_of(broker), False
    find = replicas.table.partition

    def partition(topic: str, number: int) -> Any:
        if (topic, number) == ("topic", 1) and not is_led:
            raise NotLeaderOrFollower("not yet")
        return find(topic, number)

    monkeypatch.setattr(replicas.table, "partition", partition)
    coordinator_answers.is_holding = True
    request = to_both(late, b"0", b"1")
    writing = asyncio.create_task(late.channel.send(request, ProduceResponse, version_max=V1_PRODUCE))
    await coordinator_answers.until_held()
    is_led = True
    coordinator_answers.release()
    codes = [each.partition_responses[0].error_code for each in (await writing).responses]
    assert [name_of(code) for code in codes] == ["NONE", "NOT_LEADER_OR_FOLLOWER"]


async def test_a_write_behind_partitions_that_are_led_elsewhere_may_come_too_late_too(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of several partitions goes on in a later turn of the loop, however few of them are here."""
    assert await producer.add("topic") == "NONE"
    assert await late.produce("topic", b"in time") == "NONE"
    replicas, turns = replicas_of(broker), 0
    find = replicas.table.partition
    marker = build_end_transaction_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        timestamp=0,
    )

    def partition(topic: str, number: int) -> Any:
        nonlocal turns
        if (topic, number) == ("topic", 1):
            turns += 1
            if turns == 2:  # the request is being written, and this is the turn before
                find(topic, 0).append(memoryview(marker), -1, AppendOrigin.COORDINATOR)
            raise NotLeaderOrFollower("it is led elsewhere")
        return find(topic, number)

    monkeypatch.setattr(replicas.table, "partition", partition)
    request = late.produce_request("topic", b"elsewhere", partition=1)
    request.topic_data += late.produce_request("topic", b"late").topic_data
    answer = await late.channel.send(request, ProduceResponse, version_max=V1_PRODUCE)
    codes = [each.partition_responses[0].error_code for each in answer.responses]
    assert [name_of(code) for code in codes] == ["NOT_LEADER_OR_FOLLOWER", "TRANSACTION_ABORTABLE"]
    assert await is_all_decided(broker)


def slow_disk(broker: InProcessBroker) -> ManualBackground:
    """Every write is a thread's from now on, and is on its way for as long as a test wants."""
    log, disk = replicas_of(broker).partition("topic", 0).log, ManualBackground()
    log.environment.written_elsewhere_bytes_min = 0
    log.environment._writers[log.log_directory.path] = BoundedBackground(disk, 1)
    return disk


async def until_in_line(broker: InProcessBroker, count: int) -> None:
    log = replicas_of(broker).partition("topic", 0).log
    async with asyncio.timeout(DEADLINE_S):
        while (log.writing is not None) + len(log.waiting) < count:  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("version", [3, V1_PRODUCE])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_write_that_waits_for_another_to_reach_the_disk_comes_too_late_after_the_end(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer, commit: bool, version: int
) -> None:
    """The transaction is open in the log when the request comes, and has ended when its turn has come."""
    assert await producer.add("topic") == "NONE"
    assert await late.produce("topic", b"in time") == "NONE"
    disk = slow_disk(broker)
    somebody = await Channel.connect(broker.address)
    first = produce_request("topic", b"of somebody else")
    before = asyncio.create_task(somebody.send(first, ProduceResponse, version_max=BY_NAME_PRODUCE))
    await until_in_line(broker, 1)
    writing = asyncio.create_task(late.produce("topic", b"late", version=version))
    await until_in_line(broker, 2)
    assert await producer.end(commit=commit, version=V1_END) == "NONE"
    await until_state(broker, "CompleteCommit" if commit else "CompleteAbort")
    while disk.waiting:
        disk.run_one()
    await before
    refusal = "TRANSACTION_ABORTABLE" if version == V1_PRODUCE else "INVALID_TXN_STATE"
    assert await writing == refusal
    assert await is_all_decided(broker), "a transaction is open that nobody will end"
    somebody.close()


async def test_a_late_marker_does_not_end_a_transaction_whose_first_write_is_on_its_way_to_the_disk(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer
) -> None:
    """It has the epoch of the next transaction, which the log does not know to be open yet."""
    assert await producer.produce("topic", b"first", version=V2_PRODUCE) == "NONE"
    assert await producer.end(commit=True, version=V2_END) == "NONE"
    await until_state(broker, "CompleteCommit")
    late.epoch = producer.epoch
    disk = slow_disk(broker)
    writing = asyncio.create_task(late.produce("topic", b"next", version=V2_PRODUCE))
    await until_in_line(broker, 1)
    marker = marker_of(producer.id, producer.epoch, commit=True)
    assert await write_marker(broker, marker) == "INVALID_PRODUCER_EPOCH"
    disk.run_one()
    assert await writing == "NONE"
    assert not await is_all_decided(broker), "the next transaction is open"
    assert await producer.end(commit=False, version=V2_END) == "NONE"
    await until_state(broker, "CompleteAbort")
    assert await committed(broker) == [b"first"]


async def test_a_write_that_joined_a_transaction_comes_too_late_after_its_end(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer, coordinator_answers: Held
) -> None:
    coordinator_answers.is_holding = True
    writing = asyncio.create_task(late.produce("topic", b"late", version=V2_PRODUCE))
    await coordinator_answers.until_held()
    coordinator_answers.is_holding = False
    assert await producer.end(commit=False, version=V2_END) == "NONE"
    await until_state(broker, "CompleteAbort")
    coordinator_answers.release()
    assert await writing in ("TRANSACTION_ABORTABLE", "INVALID_PRODUCER_EPOCH")
    assert await is_all_decided(broker)
    assert await producer.produce("topic", b"next", version=V2_PRODUCE) == "NONE"
    assert await producer.end(commit=True, version=V2_END) == "NONE"
    await until_state(broker, "CompleteCommit")
    assert await committed(broker) == [b"next"]


@pytest.mark.parametrize("version", [3, 4])
async def test_offsets_that_were_verified_before_the_end_come_too_late_after_it(
    broker: InProcessBroker,
    producer: HandProducer,
    late: HandProducer,
    coordinator_answers: Held,
    version: int,
) -> None:
    assert await producer.add_offsets("g") == "NONE"
    coordinator_answers.is_holding = True
    committing = asyncio.create_task(late.commit_offset("g", "topic", 5, version=version))
    await coordinator_answers.until_held()
    coordinator_answers.is_holding = False
    assert await producer.end(commit=False) == "NONE"
    await until_state(broker, "CompleteAbort")
    coordinator_answers.release()
    assert await committing == ("TRANSACTION_ABORTABLE" if version == 4 else "INVALID_TXN_STATE")
    assert await fetch_offset(broker, require_stable=True) == ("NONE", -1), "nothing is staged for good"


async def test_writes_that_wait_together_are_made_when_nothing_has_ended(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer, coordinator_answers: Held
) -> None:
    """One opens the transaction in the log, and what follows belongs to it. The end of another producer's
    transaction in the same partition is none of theirs."""
    other = HandProducer(broker.channel, "other")
    assert await other.init() == "NONE"
    assert await other.add("topic") == "NONE"
    assert await other.produce("topic", b"other") == "NONE"
    assert await producer.add("topic") == "NONE"
    second = await Channel.connect(broker.address)
    third = HandProducer(second, late.transactional_id, late.id, late.epoch)
    third._sequences[("topic", 0, third.epoch)] = 1
    coordinator_answers.is_holding = True
    writing = asyncio.create_task(late.produce("topic", b"1"))
    await coordinator_answers.until_held(1)
    following = asyncio.create_task(third.produce("topic", b"2"))
    await coordinator_answers.until_held(2)
    coordinator_answers.is_holding = False
    assert await other.end(commit=True) == "NONE"
    coordinator_answers.release()
    assert [await writing, await following] == ["NONE", "NONE"]
    assert await producer.end(commit=True) == "NONE"
    await until_state(broker, "CompleteCommit")
    assert await committed(broker) == [b"other", b"1", b"2"]
    second.close()


async def test_what_is_written_while_the_markers_are_on_their_way_is_of_the_next_transaction(
    broker: InProcessBroker, producer: HandProducer, late: HandProducer, markers: Held
) -> None:
    """The log still shows the previous transaction open, under the previous epoch. If that were enough, a
    write of the next epoch would be committed with the wrong transaction."""
    assert await producer.produce("topic", b"first", version=V2_PRODUCE) == "NONE"
    markers.is_holding = True
    assert await producer.end(commit=True, version=V2_END) == "NONE"
    assert await state_of(broker) == "PrepareCommit"
    late.epoch = producer.epoch
    writing = asyncio.create_task(late.produce("topic", b"second", version=V2_PRODUCE))
    answer = await writing
    assert answer == "NOT_ENOUGH_REPLICAS", "the last transaction is not complete: try again"
    markers.release()
    await until_state(broker, "CompleteCommit")
    assert await producer.produce("topic", b"second", version=V2_PRODUCE) == "NONE"
    assert await producer.end(commit=False, version=V2_END) == "NONE"
    await until_state(broker, "CompleteAbort")
    assert await committed(broker) == [b"first"]


async def test_a_zombie_is_fenced_while_a_transaction_of_its_successor_is_open(
    broker: InProcessBroker, producer: HandProducer
) -> None:
    zombie = producer.clone()
    assert await producer.init() == "NONE"
    assert await producer.add("topic", 0, 1) == "NONE"
    assert await producer.produce("topic", b"mine") == "NONE"
    for version in (V1_PRODUCE, V2_PRODUCE):
        for partition in (0, 1):
            answer = await zombie.produce("topic", b"not mine", partition=partition, version=version)
            assert answer == "INVALID_PRODUCER_EPOCH"
    assert await producer.end(commit=True) == "NONE"
    await until_state(broker, "CompleteCommit")
    assert await committed(broker) == [b"mine"]
    assert await committed(broker, partition=1) == []


@pytest.mark.parametrize("version", [V1_PRODUCE, V2_PRODUCE])
async def test_a_write_does_not_take_the_place_of_one_that_could_not_be_verified(
    broker: InProcessBroker, producer: HandProducer, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The log knows nothing of the producer yet, which might begin anywhere. But the first write comes again,
    and would be out of order then."""
    if version == V1_PRODUCE:
        assert await producer.add("topic") == "NONE"
    away = CoordinatorNotAvailable("it is being loaded")
    with monkeypatch.context() as loading:
        loading.setattr(
            TransactionCoordinator, "verify", lambda _self, _id, _who, _where, _done, refuse: refuse(away)
        )
        loading.setattr(
            TransactionCoordinator, "add_partitions", lambda _self, _id, _who, _where, done, **_: done(away)
        )
        assert await producer.produce("topic", b"first", version=version) == "NOT_ENOUGH_REPLICAS"
    assert await producer.produce("topic", b"second", version=version) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    again = producer.clone()
    assert await again.produce("topic", b"first", version=version) == "NONE"
    assert await again.produce("topic", b"second", version=version) == "NONE"
    assert await again.end(commit=True, version=V1_END if version == V1_PRODUCE else V2_END) == "NONE"
    await until_state(broker, "CompleteCommit")
    assert await committed(broker) == [b"first", b"second"]
