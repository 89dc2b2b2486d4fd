"""Coordinator log: writes under the leader epoch of the election, and under no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.coordinator.runtime.log import CoordinatorLog
from barnabas.core.errors import KafkaError, MessageTooLarge, NotLeaderOrFollower
from tests.unit.replication.support import ME, OTHER, ZERO, Replicas
from tests.unit.storage.support import batch


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


def records() -> bytearray:
    return bytearray(batch((b"value",)))


class Heard:
    """Outcomes of `await_replication`, and their number."""

    def __init__(self) -> None:
        self.errors: list[KafkaError | None] = []

    def __call__(self, error: KafkaError | None) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("epoch", [4, 6], ids=["an election ago", "of an election that nobody held here"])
def test_a_coordinator_of_another_epoch_cannot_append(replicas: Replicas, epoch: int) -> None:
    partition = replicas.lead(epoch=5)
    log = CoordinatorLog(replicas)
    with pytest.raises(NotLeaderOrFollower):
        log.append(ZERO, epoch, records())
    assert partition.log.log_end_offset == 0
    assert log.append(ZERO, 5, records()) == 1


def test_a_coordinator_that_was_elected_again_cannot_go_on_as_the_previous_one(replicas: Replicas) -> None:
    """The same broker leads, but another may have led in between and written records that this one missed."""
    replicas.lead(epoch=5)
    log = CoordinatorLog(replicas)
    log.append(ZERO, 5, records())
    partition = replicas.lead(epoch=6)
    with pytest.raises(NotLeaderOrFollower):
        log.append(ZERO, 5, records())
    assert partition.log.log_end_offset == 1


def test_what_was_written_before_an_election_is_not_said_to_be_replicated_after_it(
    replicas: Replicas,
) -> None:
    replicas.lead(epoch=5)
    log = CoordinatorLog(replicas)
    end_offset = log.append(ZERO, 5, records())
    replicas.lead(epoch=6)
    heard = Heard()
    log.await_replication(ZERO, 5, end_offset, 1_000, heard)
    assert [type(error) for error in heard.errors] == [NotLeaderOrFollower]


def test_who_waits_for_followers_hears_when_time_is_up(replicas: Replicas) -> None:
    replicas.lead(epoch=5, isr=(ME, OTHER))
    log = CoordinatorLog(replicas)
    end_offset = log.append(ZERO, 5, records())
    heard = Heard()
    log.await_replication(ZERO, 5, end_offset, 1_000, heard)
    assert heard.errors == []
    replicas.pass_time(1_001)
    (error,) = heard.errors
    assert error is not None


def test_who_waits_for_followers_hears_of_the_next_election(replicas: Replicas) -> None:
    replicas.lead(epoch=5, isr=(ME, OTHER))
    log = CoordinatorLog(replicas)
    end_offset = log.append(ZERO, 5, records())
    heard = Heard()
    log.await_replication(ZERO, 5, end_offset, 1_000, heard)
    replicas.lead(epoch=6, isr=(ME, OTHER))
    replicas.pass_time(1_001)
    (error,) = heard.errors
    assert error is not None, "what an earlier leader wrote may be gone"


def test_more_than_the_topic_takes_is_refused(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path), max_message_bytes=100)
    partition = replicas.lead(epoch=5)
    with pytest.raises(MessageTooLarge):
        CoordinatorLog(replicas).append(ZERO, 5, bytearray(batch((bytes(100),))))
    assert partition.log.log_end_offset == 0
