"""With `flush.messages=1` the answer of a producer waits for the disk, and one fsync answers many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.protocol.messages.produce import ProduceResponse
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, in_process_broker, produce_request
from tests.support.power_cut_files import PowerCutFiles
from tests.support.waiting import PATIENCE_S
from tests.support.wire import content


class SlowDisk:
    """Every fsync of records waits for the test's word, and is counted."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncs = 0
        self._lock = threading.Lock()
        self.begun: asyncio.Event | None = None
        self._loop = asyncio.get_running_loop()

    def __call__(self, operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            with self._lock:
                self.syncs += 1
            if self.begun is not None:
                self._loop.call_soon_threadsafe(self.begun.set)
            assert self.may_sync.wait(PATIENCE_S), "the test never let the disk go on"


@pytest.fixture
async def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
async def broker(disk: SlowDisk, tmp_path: Path) -> AsyncIterator[InProcessBroker]:
    files = PowerCutFiles()
    files.make_lasting_directory(str(tmp_path))
    async with in_process_broker(tmp_path, files=files, log_flush_interval_messages=1) as started:
        assert await started.create_topic("topic") == 0
        assert (await started.produce("topic", b"first")).error_code == 0
        files.before = disk
        try:
            yield started
        finally:
            disk.may_sync.set()
            files.before = None


@pytest.mark.parametrize("acks", [1, -1])
async def test_an_answer_waits_for_its_fsync_and_readers_wait_too(
    broker: InProcessBroker, disk: SlowDisk, acks: int
) -> None:
    disk.may_sync.clear()
    disk.begun = asyncio.Event()
    answer = asyncio.ensure_future(broker.produce("topic", b"second", acks=acks))
    await disk.begun.wait()
    other = await Channel.connect(broker.address)
    assert not answer.done()
    broker.channel, mine = other, broker.channel
    seen = await broker.fetch("topic", 1, max_wait_ms=0)
    assert (seen.high_watermark, content(seen.records)) == (1, b""), "what may be lost is not shown"
    assert not answer.done()
    disk.may_sync.set()
    assert (await answer).error_code == 0
    seen = await broker.fetch("topic", 1, max_wait_ms=0)
    assert seen.high_watermark == 2
    broker.channel = mine
    other.close()


async def test_one_fsync_answers_many_producers(broker: InProcessBroker, disk: SlowDisk) -> None:
    disk.may_sync.clear()
    disk.begun = asyncio.Event()
    channels = [await Channel.connect(broker.address) for _ in range(20)]
    first = asyncio.ensure_future(broker.produce("topic", b"first"))
    await disk.begun.wait()
    requests = [
        asyncio.ensure_future(
            channel.send(produce_request("topic", b"%d" % n), ProduceResponse, version_max=BY_NAME_PRODUCE)
        )
        for n, channel in enumerate(channels)
    ]
    broker.channel, mine = await Channel.connect(broker.address), broker.channel
    while end_of_log(broker) < 22:
        await broker.fetch("topic", 0, max_wait_ms=0)  # a round through the broker, in which others progress
    assert disk.syncs == 1, "one at a time"
    assert not any(request.done() for request in requests)
    disk.may_sync.set()
    answers = [request.responses[0].partition_responses[0] for request in await asyncio.gather(*requests)]
    assert sorted(answer.base_offset for answer in answers) == list(range(2, 22))
    assert (await first).base_offset == 1
    assert disk.syncs == 2, "the second answered all that piled up behind the first"
    broker.channel.close()
    broker.channel = mine
    for channel in channels:
        channel.close()


def end_of_log(broker: InProcessBroker) -> int:
    """The end of the log, which no consumer is shown."""
    replicas = broker.broker._replicas
    assert replicas is not None
    return replicas.partition("topic", 0).log.log_end_offset
