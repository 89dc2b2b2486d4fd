"""Lag of consumer groups on the metrics page of their coordinator, in records and in time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.node.broker import Broker
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.figures import figure
from tests.support.in_process import BY_NAME_PRODUCE, InProcessBroker, in_process_broker
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, eventually_async
from tests.support.wire import batch

OLD_MS = 3_600_000


def lag_of(broker: Broker, group: str, topic: str, partition: int = 0) -> dict[str, float]:
    labels = f'{{consumergroup="{group}",partition="{partition}",topic="{topic}"}}'
    found = {}
    for line in render_prometheus(broker.metrics).splitlines():
        name, _, rest = line.partition("{")
        if name.startswith("kafka_consumergroup_") and f"{{{rest}".startswith(labels):
            found[name] = float(rest.rpartition(" ")[2])
    return found


async def commit(broker: InProcessBroker, group: str, topic: str, offset: int, partition: int = 0) -> int:
    row = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    asked = [OffsetCommitRequestTopic(name=topic, partitions=[row])]
    request = OffsetCommitRequest(group_id=group, topics=asked)
    answer = await broker.ask(request, OffsetCommitResponse, 8)
    return answer.topics[0].partitions[0].error_code


async def committed(broker: InProcessBroker, group: str, topic: str, offset: int, partition: int = 0) -> None:
    """Commit, as soon as the coordinator has loaded its partition."""
    async with asyncio.timeout(PATIENCE_S):
        while error := await commit(broker, group, topic, offset, partition):
            assert error in {14, 15, 16}, error
            await asyncio.sleep(0.02)


async def produce_at(broker: InProcessBroker, topic: str, timestamp_ms: int, partition: int = 0) -> None:
    data = PartitionProduceData(index=partition, records=batch([b"a", b"b"], timestamp_ms=timestamp_ms))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
    answer = await broker.ask(request, ProduceResponse, BY_NAME_PRODUCE)
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metrics page for every broker of the test: without one, no lag is computed."""
    made = Broker.__init__

    def with_page(self: Broker, *args: object, **kwargs: object) -> None:
        kwargs["metrics_address"] = Endpoint("127.0.0.1", free_port())
        made(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Broker, "__init__", with_page)


@pytest.mark.usefixtures("page")
async def test_the_lag_is_what_was_written_behind_the_committed_offset(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path, offsets_topic_num_partitions=1) as broker:
        await coordinator_of({1: broker})
        assert await broker.create_topic("orders") == 0
        now_ms = SystemClock().now_ms()
        for timestamp_ms in (now_ms - 2 * OLD_MS, now_ms - OLD_MS, now_ms):
            await produce_at(broker, "orders", timestamp_ms)

        await committed(broker, "readers", "orders", 0)
        seen = lag_of(broker.broker, "readers", "orders")
        assert (seen["kafka_consumergroup_current_offset"], seen["kafka_consumergroup_lag"]) == (0, 6)
        assert 2 * OLD_MS <= seen["kafka_consumergroup_lag_ms"] < 2 * OLD_MS + 60_000

        assert figure(broker.broker.metrics, "kafka_group_coordinator_groups") == 1
        assert figure(broker.broker.metrics, "kafka_group_coordinator_offsets") == 1
        assert figure(broker.broker.metrics, "kafka_coordinator_partitions", topic="__consumer_offsets") == 1

        await committed(broker, "readers", "orders", 2)
        seen = lag_of(broker.broker, "readers", "orders")
        assert (seen["kafka_consumergroup_current_offset"], seen["kafka_consumergroup_lag"]) == (2, 4)
        assert OLD_MS <= seen["kafka_consumergroup_lag_ms"] < OLD_MS + 60_000

        await committed(broker, "readers", "orders", 6)
        assert lag_of(broker.broker, "readers", "orders") == {
            "kafka_consumergroup_current_offset": 6,
            "kafka_consumergroup_lag": 0,
            "kafka_consumergroup_lag_ms": 0,
        }


@pytest.mark.usefixtures("page")
async def test_the_lag_in_a_partition_of_another_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "offsets_topic_num_partitions": 1,
        "offsets_topic_replication_factor": 1,
        "metrics_group_lag_interval_ms": 100,
    }
    async with shared_store(tmp_path, monkeypatch):
        brokers = {each: cluster_broker(tmp_path / str(each), each, **settings) for each in (1, 2)}
        for broker in brokers.values():
            await broker.start()
        try:
            assert await brokers[1].create_topic("orders", partitions=2) == 0
            leaders = {
                each.partition_index: each.leader_id
                for each in (await brokers[1].metadata("orders")).partitions
            }
            assert set(leaders.values()) == {1, 2}
            coordinator = await coordinator_of(brokers)
            (elsewhere,) = (number for number, leader in leaders.items() if leader != coordinator)
            for _ in range(3):
                await produce_at(brokers[leaders[elsewhere]], "orders", 1, elsewhere)
            await committed(brokers[coordinator], "readers", "orders", 1, elsewhere)
            measuring = brokers[coordinator].broker

            async def look() -> bool:
                return lag_of(measuring, "readers", "orders", elsewhere).get("kafka_consumergroup_lag") == 5

            await eventually_async(look)
            seen = lag_of(measuring, "readers", "orders", elsewhere)
            assert 0 <= seen["kafka_consumergroup_lag_ms"] < PATIENCE_S * 1_000, (
                "since the first answer of the leader"
            )
        finally:
            for broker in brokers.values():
                await broker.stop()


async def coordinator_of(brokers: dict[int, InProcessBroker]) -> int:
    """The broker that leads the only partition of the offsets topic; asking for it creates it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            request = FindCoordinatorRequest(coordinator_keys=["readers"])
            answer = await brokers[1].ask(request, FindCoordinatorResponse)
            found = answer.coordinators[0]
            if not found.error_code:
                return found.node_id
            await asyncio.sleep(0.02)
