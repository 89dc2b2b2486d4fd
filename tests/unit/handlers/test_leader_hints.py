"""Current leader in responses of the wrong broker, however late the response is (KIP-951)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import NotLeaderOrFollower
from barnabas.core.ids import TopicPartition
from barnabas.handlers.produce import handle_produce
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.background import ManualBackground
from tests.support.slices import in_one_go
from tests.support.wire import batch
from tests.unit.replication.support import OTHER, ZERO, Replicas

ONE = TopicPartition(ZERO.topic, 1)


class Cluster:
    """Broker OTHER leads every partition that this one does not."""

    def __init__(self, replicas: Replicas, version: int) -> None:
        self.answers: list[ProduceResponse] = []
        leader = SimpleNamespace(leader=int(OTHER), leader_epoch=5)
        metadata = SimpleNamespace(
            partition=lambda *_: leader,
            broker=lambda _: SimpleNamespace(rack=None),
            endpoint=lambda *_: Endpoint("other.example", 9092),
        )
        self.context: Any = SimpleNamespace(
            api_version=version,
            client_id="test",
            allows=lambda *_: True,
            respond=self.answers.append,
            answer_in_slices=self.answer_in_slices,
            exchange=SimpleNamespace(connection=SimpleNamespace(listener_name="PLAINTEXT")),
            broker=SimpleNamespace(
                quotas=SimpleNamespace(is_limiting=False),
                replicas=replicas,
                broker_id=-1,
                metadata=metadata,
            ),
        )

    def answer_in_slices(self, work: Any, _waits: object = None) -> None:
        response = in_one_go(work)
        if response is not None:
            self.answers.append(response)


def produce_to_both() -> ProduceRequest:
    data = [
        PartitionProduceData(index=index, records=memoryview(bytearray(batch((b"value",)))))
        for index in (0, 1)
    ]
    topics = [TopicProduceData(name=ZERO.topic, partition_data=data)]
    return ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics)


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("is_lost_meanwhile", [False, True])
def test_leaders_are_named_also_when_another_partition_waited(
    tmp_path: Path, version: int, is_lost_meanwhile: bool
) -> None:
    disk = ManualBackground()
    replicas = Replicas(str(tmp_path), background=disk, flush_messages=1)
    replicas.lead(ZERO)
    replicas.lead(ONE)
    if not is_lost_meanwhile:
        replicas.partition(*ONE).resign()
    cluster = Cluster(replicas, version)
    handle_produce(produce_to_both(), cluster.context)
    assert cluster.answers == [], "partition 0 waits for its fsync"
    if is_lost_meanwhile:
        replicas.local.stop(ONE, delete=False)
    while disk.waiting:
        disk.run_one()
    (response,) = cluster.answers
    here, elsewhere = response.responses[0].partition_responses
    assert (here.error_code, here.current_leader) == (0, None)
    assert elsewhere.error_code == NotLeaderOrFollower.code
    if version == 9:
        assert elsewhere.current_leader is None
    else:
        assert elsewhere.current_leader is not None
        assert (elsewhere.current_leader.leader_id, elsewhere.current_leader.leader_epoch) == (OTHER, 5)
        assert [each.host for each in response.node_endpoints] == ["other.example"]
