"""A coordinator writes only while it leads, and in the epoch that it was elected in."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.replication.support import ME, OTHER, ZERO, Replicas

from barnabas.core.errors import KafkaError, MessageTooLarge, NotLeaderOrFollower
from barnabas.node.coordinator_log import ReplicatedLog
from barnabas.records.builder import build_batch


def record() -> bytearray:
    return build_batch([(b"key", b"value", (), 0)])


@pytest.mark.parametrize("epoch", [3, 5])
def test_a_coordinator_of_another_epoch_cannot_append(tmp_path: Path, epoch: int) -> None:
    replicas = Replicas(str(tmp_path))
    replicas.lead(epoch=4)
    log = ReplicatedLog(replicas)
    assert log.append(ZERO, 4, record()) == 1
    with pytest.raises(NotLeaderOrFollower):
        log.append(ZERO, epoch, record())
    assert log.end_offset(ZERO) == 1


def test_a_coordinator_of_another_epoch_hears_nothing_of_replication(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path))
    replicas.lead(epoch=4)
    log = ReplicatedLog(replicas)
    end_offset = log.append(ZERO, 4, record())
    heard: list[KafkaError | None] = []
    log.await_replication(ZERO, 4, end_offset, 1_000, heard.append)
    log.await_replication(ZERO, 3, end_offset, 1_000, heard.append)
    assert [type(each) for each in heard] == [type(None), NotLeaderOrFollower]


def test_an_answer_waits_for_the_isr(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path))
    replicas.lead(epoch=4, isr=(ME, OTHER))
    log = ReplicatedLog(replicas)
    heard: list[KafkaError | None] = []
    log.await_replication(ZERO, 4, log.append(ZERO, 4, record()), 1_000, heard.append)
    assert heard == []
    replicas.pass_time(1_001)
    assert len(heard) == 1
    assert isinstance(heard[0], KafkaError)


def test_a_batch_has_the_size_that_the_topic_allows(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path), max_message_bytes=len(record()))
    replicas.lead(epoch=4)
    log = ReplicatedLog(replicas)
    assert log.batch_bytes_max(ZERO) == len(record())
    log.append(ZERO, 4, record())
    with pytest.raises(MessageTooLarge):
        log.append(ZERO, 4, build_batch([(b"key", b"values", (), 0)]))
