"""A disk that takes long to write large records delays their producer, and no other client."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import (
    KafkaStorageError,
    NetworkException,
    NotLeaderOrFollower,
    UnknownServerError,
)
from barnabas.core.limits import UNWRITTEN_BYTES_MAX, WRITTEN_ELSEWHERE_BYTES_MIN
from barnabas.network.connection import Connection
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, in_process_broker, produce_request
from tests.support.power_cut_files import PowerCutFiles
from tests.support.waiting import PATIENCE_S

LARGE = b"L" * WRITTEN_ELSEWHERE_BYTES_MIN


class SlowLog:
    """Every write to one log waits for the test's word."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.error: OSError | None = None
        self.begun = asyncio.Event()
        self.writes = 0
        self._loop = asyncio.get_running_loop()

    def __call__(self, operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log") and "/slow-0/" in path:
            self.writes += 1
            self._loop.call_soon_threadsafe(self.begun.set)
            assert self.may_write.wait(PATIENCE_S), "the test never let the disk go on"
            if self.error is not None:
                raise self.error


@pytest.fixture
def files(tmp_path: Path) -> PowerCutFiles:
    files = PowerCutFiles()
    files.make_lasting_directory(str(tmp_path))
    return files


@pytest.fixture
async def broker(files: PowerCutFiles, tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(tmp_path, files=files) as started:
        assert await started.create_topic("slow") == 0
        assert await started.create_topic("quick") == 0
        assert (await started.produce("slow", b"first")).error_code == 0
        yield started


@pytest.fixture
async def disk(broker: InProcessBroker, files: PowerCutFiles) -> AsyncIterator[SlowLog]:
    slow = SlowLog()
    files.before = slow
    try:
        yield slow
    finally:
        slow.may_write.set()
        files.before = None


@pytest.fixture
async def channel(broker: InProcessBroker) -> AsyncIterator[Channel]:
    channel = await Channel.connect(broker.address)
    yield channel
    channel.close()


def send(channel: Channel, *values: bytes, acks: int = -1) -> asyncio.Task[ProduceResponse]:
    request = produce_request("slow", *values, acks=acks)
    return asyncio.ensure_future(channel.send(request, ProduceResponse, version_max=BY_NAME_PRODUCE))


def outcome(response: ProduceResponse) -> tuple[int, int]:
    answer = response.responses[0].partition_responses[0]
    return answer.error_code, answer.base_offset


@pytest.mark.parametrize("acks", [1, -1])
async def test_others_are_served_and_no_consumer_reads_what_is_not_there(
    broker: InProcessBroker, disk: SlowLog, channel: Channel, acks: int
) -> None:
    large = send(channel, LARGE, acks=acks)
    await disk.begun.wait()
    for number in range(5):
        answer = await broker.produce("quick", b"quick")
        assert (answer.error_code, answer.base_offset) == (0, number)
    assert await broker.read_all("slow") == [b"first"]
    assert not large.done()
    disk.may_write.set()
    assert outcome(await large) == (0, 1)
    assert await broker.read_all("slow") == [b"first", LARGE]


async def test_what_comes_behind_a_large_append_does_not_overtake_it(
    broker: InProcessBroker, disk: SlowLog, channel: Channel
) -> None:
    one = [send(channel, LARGE), send(channel, b"small"), send(channel, LARGE), send(channel, b"last")]
    await disk.begun.wait()
    other = asyncio.ensure_future(broker.produce("slow", b"another client"))
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in one)
    assert not other.done()
    assert disk.writes == 1
    disk.may_write.set()
    answers = [outcome(await each) for each in one]
    assert all(error == 0 for error, _ in answers)
    assert sorted([offset for _, offset in answers] + [(await other).base_offset]) == [1, 2, 3, 4, 5]
    assert [offset for _, offset in answers] == sorted(offset for _, offset in answers)
    written = await broker.read_all("slow")
    for (_, offset), value in zip(answers, (LARGE, b"small", LARGE, b"last"), strict=True):
        assert written[offset] == value


async def test_a_request_for_several_partitions_is_answered_when_all_are_written(
    broker: InProcessBroker, disk: SlowLog, channel: Channel
) -> None:
    small, large = produce_request("quick", b"small"), produce_request("slow", LARGE)
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[*large.topic_data, *small.topic_data])
    both = asyncio.ensure_future(channel.send(request, ProduceResponse, version_max=BY_NAME_PRODUCE))
    await disk.begun.wait()
    assert await broker.read_all("quick") == [b"small"], "what is small is there at once"
    assert not both.done()
    disk.may_write.set()
    answers = {each.name: each.partition_responses[0] for each in (await both).responses}
    assert {name: (each.error_code, each.base_offset) for name, each in answers.items()} == {
        "slow": (0, 1),
        "quick": (0, 0),
    }


@pytest.mark.parametrize("is_slow_first", [True, False])
async def test_readers_hear_at_once_of_what_is_written(
    broker: InProcessBroker, disk: SlowLog, channel: Channel, is_slow_first: bool
) -> None:
    """A request is answered as one; who reads one of its partitions does not wait for the others."""
    small, large = produce_request("quick", b"small"), produce_request("slow", LARGE)
    topics = [*large.topic_data, *small.topic_data]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=topics if is_slow_first else list(reversed(topics))
    )
    reading = asyncio.ensure_future(broker.fetch("quick", 0, max_wait_ms=600_000))
    await asyncio.sleep(0.05)
    both = asyncio.ensure_future(channel.send(request, ProduceResponse, version_max=BY_NAME_PRODUCE))
    await disk.begun.wait()
    async with asyncio.timeout(PATIENCE_S):
        assert (await reading).high_watermark == 1
    assert not both.done()
    disk.may_write.set()
    await both


async def test_an_answer_that_cannot_be_made_costs_one_connection(
    broker: InProcessBroker, disk: SlowLog, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = broker.broker._replicas
    assert replicas is not None
    large = send(channel, LARGE)
    await disk.begun.wait()
    with monkeypatch.context() as broken:
        broken.setattr(replicas, "await_acks", None)
        disk.may_write.set()
        with pytest.raises(NetworkException):
            await large
    assert replicas.partition("slow", 0).log.log_directory.unwritten_bytes == 0
    assert (await broker.produce("slow", b"behind")).base_offset == 2


async def test_records_that_cannot_be_kept_are_refused(
    broker: InProcessBroker, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lend(_: Connection) -> None:
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(Connection, "lend", lend)
        async with asyncio.timeout(PATIENCE_S):
            assert outcome(await send(channel, LARGE)) == (UnknownServerError.code, -1)
    replicas = broker.broker._replicas
    assert replicas is not None
    assert replicas.partition("slow", 0).log.log_directory.unwritten_bytes == 0


async def test_only_who_shares_the_broker_is_written_for_by_a_thread(
    broker: InProcessBroker, files: PowerCutFiles, channel: Channel
) -> None:
    """Handing a write over costs more than the write, which delays no client if no other is served."""
    writers: list[bool] = []

    def note(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log") and "/slow-0/" in path:
            writers.append(threading.current_thread() is threading.main_thread())

    files.before = note
    assert outcome(await send(channel, LARGE)) == (0, 1)
    assert outcome(await send(channel, LARGE)) == (0, 2)
    assert (await broker.produce("quick", b"quick")).error_code == 0
    assert outcome(await send(channel, LARGE)) == (0, 3)
    files.before = None
    assert writers == [False, True, False]


async def test_all_that_is_large_in_a_request_is_written_by_threads(
    broker: InProcessBroker, files: PowerCutFiles, channel: Channel
) -> None:
    assert await broker.create_topic("wide", 3) == 0
    writers: list[bool] = []

    def note(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log") and "/wide-" in path:
            writers.append(threading.current_thread() is threading.main_thread())

    files.before = note
    each = [produce_request("wide", LARGE, partition=number).topic_data[0] for number in range(3)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=each)
    answer = await channel.send(request, ProduceResponse, version_max=BY_NAME_PRODUCE)
    files.before = None
    assert [each.partition_responses[0].error_code for each in answer.responses] == [0, 0, 0]
    assert writers == [False] * 3


async def test_a_write_that_fails_is_told_and_takes_the_disk_offline(
    broker: InProcessBroker, disk: SlowLog, channel: Channel
) -> None:
    waiting = [send(channel, LARGE), send(channel, b"behind it")]
    await disk.begun.wait()
    disk.error = OSError(errno.EIO, "Input/output error")
    disk.may_write.set()
    assert [outcome(await each) for each in waiting] == [(KafkaStorageError.code, -1)] * 2


async def test_who_waited_for_a_log_that_is_gone_does_not_write_to_its_successor(
    broker: InProcessBroker, disk: SlowLog, channel: Channel
) -> None:
    large, behind = send(channel, LARGE), send(channel, b"of the former topic")
    await disk.begun.wait()
    deletion = DeleteTopicsRequest(topic_names=["slow"], timeout_ms=10_000)
    deleted = await broker.ask(deletion, DeleteTopicsResponse, version_max=5)
    assert deleted.responses[0].error_code == 0
    assert await broker.create_topic("slow") == 0
    disk.may_write.set()
    await large
    assert outcome(await behind) == (NotLeaderOrFollower.code, -1)
    assert await broker.read_all("slow") == []


async def test_a_producer_without_acks_is_written_too(
    broker: InProcessBroker, disk: SlowLog, channel: Channel
) -> None:
    request = produce_request("slow", LARGE, acks=0)
    unanswered = asyncio.ensure_future(channel.send(request, ProduceResponse, version_max=BY_NAME_PRODUCE))
    await disk.begun.wait()
    behind = asyncio.ensure_future(broker.produce("slow", b"behind"))
    disk.may_write.set()
    assert (await behind).base_offset == 2
    unanswered.cancel()
    assert await broker.read_all("slow") == [b"first", LARGE, b"behind"]


async def test_memory_for_what_is_not_written_is_bounded(
    broker: InProcessBroker, disk: SlowLog, channel: Channel
) -> None:
    value = b"V" * 1_000_000
    count = 2 * UNWRITTEN_BYTES_MAX // len(value)
    sent = [send(channel, value) for _ in range(count)]
    await disk.begun.wait()
    await asyncio.sleep(0.2)
    replicas = broker.broker._replicas
    assert replicas is not None
    home = replicas.partition("slow", 0).log.log_directory
    assert home.unwritten_bytes <= UNWRITTEN_BYTES_MAX + 2 * len(value)
    disk.may_write.set()
    assert [outcome(await each) for each in sent] == [(0, 1 + number) for number in range(count)]
    assert home.unwritten_bytes == 0


async def test_a_broker_that_stops_finishes_what_it_began(files: PowerCutFiles, tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, files=files) as broker:
        assert await broker.create_topic("slow") == 0
        files.before = disk = SlowLog()
        channel = await Channel.connect(broker.address)
        large = send(channel, LARGE)
        await disk.begun.wait()
        asyncio.get_running_loop().call_later(0.1, disk.may_write.set)
    files.before = None
    channel.close()
    await asyncio.gather(large, return_exceptions=True)
    async with in_process_broker(tmp_path, files=files) as broker:
        assert await broker.read_all("slow") == [LARGE]
