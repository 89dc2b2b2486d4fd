"""Completion of DeleteRecords, and the offsets that it accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import NotLeaderOrFollower, OffsetOutOfRange, PolicyViolation, RequestTimedOut
from barnabas.core.ids import BrokerId
from barnabas.replication.leader.delayed_delete_records import PendingDeletion
from tests.unit.replication.support import ME, OTHER, ZERO, Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


def test_an_answer_comes_once_the_start_has_moved(replicas: Replicas) -> None:
    partition = replicas.lead(replicas=(ME,))
    replicas.append(partition, b"a", b"b", b"c")
    assert partition.delete_records_before(2) == 2
    answer, answered = PendingDeletion(partition, 2), []
    replicas.await_deletion(100, [answer], lambda: answered.append(1))
    assert answered == [1]
    assert (answer.error_code, answer.low_watermark) == (0, 2)
    assert partition.delete_records_before(-1) == 3, "-1 is everything that is committed"
    assert partition.delete_records_before(1) == 3, "the start never goes back"


def test_an_answer_that_waits_comes_with_the_high_watermark(
    replicas: Replicas,
) -> None:
    partition = replicas.lead(replicas=(ME,))
    replicas.append(partition, b"a", b"b")
    answer, answered = PendingDeletion(partition, 2), []
    replicas.await_deletion(100, [answer], lambda: answered.append(1))
    assert answered == []
    partition.delete_records_before(2)
    replicas.flushed(partition.log)
    assert answered == [1]
    assert (answer.error_code, answer.low_watermark) == (0, 2)


def test_a_lost_leadership_and_a_timeout_are_answers_too(replicas: Replicas) -> None:
    partition = replicas.lead(replicas=(ME,))
    replicas.append(partition, b"a", b"b")
    late, lost = PendingDeletion(partition, 2), PendingDeletion(partition, 2)
    answered: list[str] = []
    replicas.await_deletion(50, [late], lambda: answered.append("late"))
    replicas.await_deletion(100, [lost], lambda: answered.append("lost"))
    replicas.pass_time(50)
    assert answered == ["late"]
    assert late.error_code == RequestTimedOut.code
    replicas.local.stop(ZERO, delete=False)
    assert answered == ["late", "lost"]
    assert lost.error_code == NotLeaderOrFollower.code


def test_followers_that_live_are_waited_for_and_others_are_not(replicas: Replicas) -> None:
    third = BrokerId(3)
    replicas.dead.add(third)
    partition = replicas.lead(isr=(ME, OTHER), replicas=(ME, OTHER, third))
    replicas.append(partition, b"a", b"b")
    replicas.fetched(partition, third, 0, 0)
    replicas.fetched(partition, OTHER, 2, 0)
    partition.delete_records_before(2)
    answer, answered = PendingDeletion(partition, 2), []
    replicas.await_deletion(100, [answer], lambda: answered.append(1))
    assert answered == []
    replicas.fetched(partition, OTHER, 2, 2)
    assert answered == [1]
    assert (answer.error_code, answer.low_watermark) == (0, 2)


def test_only_committed_records_of_a_topic_with_deletion_can_be_deleted(tmp_path: Path) -> None:
    replicas = Replicas(str(tmp_path / "deleted"))
    partition = replicas.lead(replicas=(ME,))
    replicas.append(partition)
    for offset in (2, -2):
        with pytest.raises(OffsetOutOfRange):
            partition.delete_records_before(offset)
    compacted = Replicas(str(tmp_path / "compacted"), cleanup_policy=("compact",))
    with pytest.raises(PolicyViolation):
        compacted.lead().delete_records_before(0)
