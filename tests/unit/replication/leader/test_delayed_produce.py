"""Completion of produces: cases A, B.1 and B.2, and the timeout."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import (
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from barnabas.core.ids import ACKS_ALL, BrokerId
from barnabas.replication.leader.delayed_produce import PendingAck
from barnabas.replication.partition.leadership import LeaderAndIsr
from tests.support.background import ManualBackground
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.replication.support import ME, ONE, OTHER, ZERO, Replicas, is_answered


@pytest.fixture
def disk() -> ManualBackground:
    return ManualBackground()


@pytest.fixture
def replicas(tmp_path: Path, disk: ManualBackground) -> Replicas:
    """Nothing is acknowledged before its fsync, and the test ends each fsync."""
    return Replicas(str(tmp_path), background=disk, flush_messages=1)


@pytest.mark.parametrize("acks", [1, -1])
def test_the_answer_waits_for_the_disk(replicas: Replicas, disk: ManualBackground, acks: int) -> None:
    partition = replicas.lead()
    answer = replicas.await_ack(partition, replicas.append(partition, acks=acks), acks)
    assert not is_answered(answer)
    assert partition.log.high_watermark == 0, "nothing is committed that a power cut could take"
    disk.run_one()
    assert is_answered(answer)
    assert answer.error_code == 0
    assert partition.log.high_watermark == 1
    assert replicas.delayed.produces.pending == 0


@pytest.mark.parametrize("isr", [[ME], [ME, OTHER]])
def test_at_the_end_only_the_own_disk_is_waited_for(replicas: Replicas, isr: list[BrokerId]) -> None:
    partition = replicas.lead(replicas=isr, isr=isr)
    answer = replicas.await_ack(partition, replicas.append(partition), -1)
    replicas.delayed.answer_waiting()
    assert is_answered(answer) == (OTHER in isr)
    assert answer.error_code == RequestTimedOut.code


def test_one_fsync_answers_all_producers_that_piled_up(replicas: Replicas, disk: ManualBackground) -> None:
    partition = replicas.lead()
    first = replicas.await_ack(partition, replicas.append(partition), -1)
    later = [replicas.await_ack(partition, replicas.append(partition), -1) for _ in range(50)]
    assert len(disk.waiting) == 1, "one fsync at a time"
    disk.run_one()
    assert is_answered(first)
    assert not any(map(is_answered, later)), "they came too late for the first fsync"
    disk.run_one()
    assert all(map(is_answered, later))
    assert disk.waiting == []


@pytest.mark.parametrize("delete", [False, True])
def test_case_a_a_partition_that_is_no_longer_led_here_says_so(replicas: Replicas, delete: bool) -> None:
    partition = replicas.lead()
    answer = replicas.await_ack(partition, replicas.append(partition), -1)
    replicas.local.stop(ZERO, delete=delete)
    assert is_answered(answer)
    assert answer.error_code == NotLeaderOrFollower.code


def test_case_a_a_leader_that_followed_meanwhile_does_not_vouch_for_its_old_records(
    replicas: Replicas,
) -> None:
    partition = replicas.lead()
    answer = replicas.await_ack(partition, replicas.append(partition), -1)
    partition.become_follower(LeaderAndIsr(OTHER, 1, (ME, OTHER)))
    replicas.lead(epoch=2)
    assert is_answered(answer)
    assert answer.error_code == NotLeaderOrFollower.code


def test_records_wait_on_when_their_leader_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path))
    partition = replicas.lead(isr=(ME, OTHER))
    answer = replicas.await_ack(partition, replicas.append(partition), -1)
    replicas.lead(epoch=1, isr=(ME, OTHER))
    assert not is_answered(answer)
    replicas.fetched(partition, OTHER, 1, 0)
    assert is_answered(answer)
    assert answer.error_code == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_case_b1_a_disk_that_fails_meanwhile_is_the_answer(disk: ManualBackground, acks: int) -> None:
    files = PowerCutFiles()
    replicas = Replicas("/disk", files=files, background=disk, flush_messages=1)
    partition = replicas.lead()
    answer = replicas.await_ack(partition, replicas.append(partition, acks=acks), acks)

    def refuse(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise OSError(5, "Input/output error")

    files.before = refuse
    disk.run_one()
    assert is_answered(answer), "the producer is told at once, not when its patience ends"
    assert answer.error_code == KafkaStorageError.code


def test_case_b2_an_isr_that_shrank_after_the_append_is_told(tmp_path: Path, disk: ManualBackground) -> None:
    replicas = Replicas(str(tmp_path), background=disk, flush_messages=1, min_insync_replicas=2)
    partition = replicas.lead(isr=(ME, OTHER))
    answer = replicas.await_ack(partition, replicas.append(partition, acks=-1), -1)
    partition.leadership.isr = frozenset({ME})
    disk.run_one()
    assert is_answered(answer)
    assert answer.error_code == NotEnoughReplicasAfterAppend.code


def test_acks_one_does_not_ask_how_many_are_in_sync(tmp_path: Path, disk: ManualBackground) -> None:
    replicas = Replicas(str(tmp_path), background=disk, flush_messages=1, min_insync_replicas=2)
    partition = replicas.lead(isr=(ME,))
    answer = replicas.await_ack(partition, replicas.append(partition, acks=1), 1)
    assert not is_answered(answer)
    disk.run_one()
    assert (is_answered(answer), answer.error_code) == (True, 0)


def test_an_isr_below_the_minimum_refuses_acks_all_and_takes_the_others(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path), min_insync_replicas=2)
    partition = replicas.lead(isr=(ME,))
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas"):
        replicas.append(partition, acks=-1)
    assert partition.log.log_end_offset == 0, "a refused batch is not appended"
    assert replicas.append(partition, acks=1).first_offset == 0


def test_a_produce_for_several_partitions_waits_for_each(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path))
    first, second = (replicas.lead(key, isr=(ME, OTHER)) for key in (ZERO, ONE))
    pending = [PendingAck(each, replicas.append(each).last_offset + 1) for each in (first, second)]
    answered: list[bool] = []
    replicas.await_acks(1_000, ACKS_ALL, pending, lambda: answered.append(True))
    replicas.fetched(second, OTHER, 1)
    assert not answered, "the first partition is not replicated yet"
    replicas.fetched(first, OTHER, 1)
    assert answered == [True]
    assert [each.error_code for each in pending] == [0, 0]


def test_patience_ends_with_a_timeout_and_the_records_stay(
    replicas: Replicas, disk: ManualBackground
) -> None:
    partition = replicas.lead()
    answer = replicas.await_ack(partition, replicas.append(partition), -1, timeout_ms=100)
    replicas.pass_time(99)
    assert not is_answered(answer)
    replicas.pass_time(1)
    assert is_answered(answer)
    assert answer.error_code == RequestTimedOut.code
    disk.run_one()
    assert partition.log.high_watermark == 1
    assert replicas.delayed.produces.pending == 0


def test_a_closed_log_no_longer_answers_for_anybody(replicas: Replicas, disk: ManualBackground) -> None:
    """An fsync that ends after its partition was deleted changes nothing that can be seen."""
    partition = replicas.lead()
    answer = replicas.await_ack(partition, replicas.append(partition), -1)
    replicas.local.stop(ZERO, delete=True)
    assert is_answered(answer)
    disk.run_one()
    assert answer.error_code == NotLeaderOrFollower.code
