"""A broker whose own coordination store cannot write, or is damaged: it ends with a message, or recovers."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.cluster.embedded.journal import Journal
from barnabas.core.clock import SystemClock
from barnabas.node.lifecycle import BrokerState
from barnabas.node.main import BrokerHalted, StartupFailed, serve_broker
from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.batch import NO_PRODUCER_ID
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, in_process_broker, state_of
from tests.support.wire import batch


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
async def test_a_broker_whose_store_cannot_write_says_so_and_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """It could only answer NOT_CONTROLLER from then on."""
    client = InProcessBroker([tmp_path])
    broker = client.broker
    serving = asyncio.create_task(serve_broker(broker, asyncio.Event()))
    async with asyncio.timeout(60):
        while broker.lifecycle.state is not BrokerState.RUNNING:  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(0.01)
        client.channel = await Channel.connect(client.address)
        assert await client.create_topic("topic") == 0
        assert (await client.produce("topic", b"kept")).error_code == 0

        def fail(*_: object) -> None:
            raise OSError(error, "the disk says no")

        with monkeypatch.context() as failing:
            failing.setattr(Journal, "append", fail)
            assert await client.create_topic("refused") != 0
        with pytest.raises(BrokerHalted, match=r"the coordination store cannot write: .*the disk says no"):
            await serving
        client.channel.close()
    assert state_of(broker) is BrokerState.NOT_RUNNING
    async with in_process_broker(tmp_path) as again:
        assert await again.read_all("topic") == [b"kept"]
        assert await again.create_topic("refused") == 0


async def test_a_store_that_is_damaged_in_one_copy_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / COORDINATION_DIRECTORY / "log"
    async with in_process_broker(tmp_path) as broker:
        for name in ("one", "two", "three"):
            assert await broker.create_topic(name, retention_ms=-1) == 0
    for third in (1, 2):
        flip(log, third * log.stat().st_size // 3)
    async with in_process_broker(tmp_path) as broker:
        for name in ("one", "two", "three"):
            (partition,) = (await broker.metadata(name)).partitions
            assert partition.error_code == 0
            replicas = broker.broker._replicas
            assert replicas is not None
            assert replicas.partition(name, 0).log.config.retention_ms == -1
    assert "is repaired" in caplog.text
    assert "adopted" not in caplog.text


async def test_a_broker_does_not_start_on_a_store_that_has_lost_something(tmp_path: Path) -> None:
    directory = tmp_path / COORDINATION_DIRECTORY
    async with in_process_broker(tmp_path) as broker:
        assert await broker.create_topic("topic") == 0
    for name in ("log", "log.copy"):
        flip(directory / name, (directory / name).stat().st_size // 2)
    with pytest.raises(StartupFailed, match=r"log and its copy are damaged at byte \d+ .*from a backup"):
        await serve_broker(InProcessBroker([tmp_path]).broker, asyncio.Event())


async def test_an_id_that_the_logs_know_is_given_to_no_other_producer(tmp_path: Path) -> None:
    """Even if the store is of an earlier time: records of a new producer would be taken for repetitions."""
    ids: list[int] = []
    for value in (b"one", b"two"):
        async with in_process_broker(tmp_path) as broker:
            if not ids:
                assert await broker.create_topic("topic") == 0
                backup = {
                    path.name: path.read_bytes()
                    for path in (tmp_path / COORDINATION_DIRECTORY).iterdir()
                    if path.stat().st_size
                }
            answer = await broker.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), InitProducerIdResponse
            )
            assert answer.error_code == 0
            ids.append(answer.producer_id)
            records = batch(
                [value],
                timestamp_ms=SystemClock().now_ms(),
                producer_id=answer.producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            data = PartitionProduceData(index=0, records=records)
            topic = TopicProduceData(name="topic", partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
            produced = await broker.ask(request, ProduceResponse, BY_NAME_PRODUCE)
            assert produced.responses[0].partition_responses[0].error_code == 0
            assert value in await broker.read_all("topic")
        for name, content in backup.items():
            (tmp_path / COORDINATION_DIRECTORY / name).write_bytes(content)
    assert len({*ids, NO_PRODUCER_ID}) == 3
