"""A write by a thread belongs to the leader epoch in which it began, even if the leader changes before its
end."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import NotEnoughReplicas, NotLeaderOrFollower
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.partition import Partition
from barnabas.storage.log.parts.append import AppendInfo, Outcome
from tests.support.background import ManualBackground
from tests.unit.replication.support import ME, OTHER, Replicas
from tests.unit.storage.support import batch


@pytest.fixture
def disk() -> ManualBackground:
    return ManualBackground()


@pytest.fixture
def replicas(tmp_path: Path, disk: ManualBackground) -> Replicas:
    return Replicas(str(tmp_path), background=disk)


def begin(partition: Partition, acks: int = -1) -> list[Outcome]:
    outcomes: list[Outcome] = []
    partition.append_elsewhere(memoryview(batch([b"large"])), acks, outcomes.append)
    return outcomes


def test_the_high_watermark_moves_when_the_bytes_are_there(
    replicas: Replicas, disk: ManualBackground
) -> None:
    partition = replicas.lead()
    outcomes = begin(partition)
    assert (partition.log.log_end_offset, partition.log.high_watermark, outcomes) == (0, 0, [])
    disk.run_one()
    assert (partition.log.log_end_offset, partition.log.high_watermark) == (1, 1)
    assert isinstance(outcomes[0], AppendInfo)
    assert partition.metrics.messages_in.value == 1


def test_a_new_epoch_begins_behind_what_was_begun_before(replicas: Replicas, disk: ManualBackground) -> None:
    partition = replicas.lead(isr=(ME, OTHER))
    begin(partition)
    replicas.lead(epoch=1, isr=(ME, OTHER))
    assert partition.leader_epoch_start_offset == 1
    assert partition.end_offset_for_epoch(0) == (0, 1)
    disk.run_one()
    assert partition.log.log_end_offset == 1
    replicas.append(partition, b"in the new epoch")
    assert partition.end_offset_for_epoch(0) == (0, 1)


@pytest.mark.parametrize("acks", [1, -1])
def test_who_follows_meanwhile_does_not_vouch_for_it(
    replicas: Replicas, disk: ManualBackground, acks: int
) -> None:
    partition = replicas.lead()
    outcomes = begin(partition, acks)
    epoch = partition.leadership.leader_epoch
    partition.become_follower(LeaderAndIsr(OTHER, 1, (ME, OTHER)))
    replicas.lead(epoch=2)
    disk.run_one()
    assert isinstance(outcomes[0], AppendInfo)
    pending = PendingAck(partition, outcomes[0].last_offset + 1, epoch)
    replicas.await_acks(1_000, acks, [pending], lambda: None)
    assert pending.error_code == NotLeaderOrFollower.code


def test_an_append_under_way_belongs_to_the_epoch_in_which_it_began(
    replicas: Replicas, disk: ManualBackground
) -> None:
    """A broker that becomes a follower first finishes the write, so that its first fetch names it."""
    partition = replicas.lead()
    begin(partition)
    assert partition.log.log_end_offset == 0
    partition.become_follower(LeaderAndIsr(OTHER, 1, (ME, OTHER)))
    assert partition.log.log_end_offset > 0


def test_it_is_refused_before_anything_is_written(tmp_path: Path, disk: ManualBackground) -> None:
    replicas = Replicas(str(tmp_path), background=disk, min_insync_replicas=2)
    partition = replicas.lead(isr=(ME,))
    with pytest.raises(NotEnoughReplicas):
        begin(partition)
    assert disk.waiting == []


def test_who_appended_hears_of_it_whatever_goes_wrong_afterwards(
    replicas: Replicas, disk: ManualBackground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unforeseen(_: Partition) -> bool:
        raise ZeroDivisionError

    partition = replicas.lead()
    outcomes = begin(partition)
    with monkeypatch.context() as broken:
        broken.setattr(Partition, "maybe_advance_high_watermark", unforeseen)
        disk.run_one()
    assert isinstance(outcomes[0], AppendInfo)
