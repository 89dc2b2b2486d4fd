"""Changes of a partition that is led, followed, or neither; and changes that come too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from barnabas.core.ids import NO_LEADER, BrokerId
from barnabas.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.replication.partition.leadership import LeaderAndIsr
from tests.unit.replication.support import ME, OTHER, TOPIC_ID, ZERO, Replicas, at, fetch_params, is_answered
from tests.unit.storage.support import batch

BOTH = (ME, OTHER)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


def order(replicas: Replicas, leader: int, leader_epoch: int) -> int:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(BOTH),
        partition_epoch=leader_epoch,
        replicas=list(BOTH),
        is_new=True,
    )
    topic = LeaderAndIsrTopicState(topic_name=ZERO.topic, topic_id=TOPIC_ID, partition_states=[state])
    answer = replicas.order(LeaderAndIsrRequest(topic_states=[topic]))
    return answer.topics[0].partition_errors[0].error_code


def test_who_waits_hears_at_once_that_the_leadership_is_lost(replicas: Replicas) -> None:
    order(replicas, ME, 0)
    partition = replicas.partition(*ZERO)
    waiting = replicas.await_ack(partition, replicas.append(partition), -1)
    replicas.ask(at(0, epoch=0))
    assert not is_answered(waiting)
    assert replicas.answered == []
    order(replicas, NO_LEADER, 1)
    assert is_answered(waiting)
    assert waiting.error_code == NotLeaderOrFollower.code
    ((read,),) = replicas.answered
    assert read.error_code == FencedLeaderEpoch.code


@pytest.mark.parametrize(("leader", "leader_epoch"), [(OTHER, 6), (OTHER, 4), (ME, 5)])
def test_what_was_fetched_in_another_epoch_is_not_appended(
    replicas: Replicas, leader: BrokerId, leader_epoch: int
) -> None:
    """It is on its way when the controller names another leader, perhaps ourselves."""
    partition = replicas.local.get_or_create(ZERO, TOPIC_ID)
    if leader == ME:
        partition.become_leader(LeaderAndIsr(ME, leader_epoch, BOTH, BOTH))
    else:
        partition.become_follower(LeaderAndIsr(leader, leader_epoch, BOTH, BOTH))
    with pytest.raises(FencedLeaderEpoch):
        partition.append_as_follower(memoryview(batch([b"late"])), 5)
    assert partition.log.log_end_offset == 0


def test_a_leader_that_has_written_nothing_knows_where_the_epochs_before_it_ended(replicas: Replicas) -> None:
    partition = replicas.lead(epoch=2)
    replicas.append(partition)
    replicas.append(partition)
    replicas.lead(epoch=7)
    assert partition.end_offset_for_epoch(7) == (7, 2)
    assert partition.end_offset_for_epoch(5) == (2, 2), "nobody wrote between 2 and 7"
    assert partition.end_offset_for_epoch(2) == (2, 2)
    assert partition.end_offset_for_epoch(8) == (-1, -1)


@pytest.mark.parametrize(
    ("last_epoch", "offset", "diverging"),
    [
        pytest.param(0, 2, None, id="one history"),
        pytest.param(0, 3, (0, 2), id="it has more of an epoch than we"),
        pytest.param(3, 2, (0, 2), id="it has an epoch that we have not, though it is no longer than ours"),
        pytest.param(3, 1, (0, 2), id="it has an epoch that we have not, and is shorter"),
        pytest.param(5, 3, None, id="one history, with the present epoch"),
    ],
)
def test_a_tail_that_is_not_ours_is_found_by_its_epoch(
    replicas: Replicas, last_epoch: int, offset: int, diverging: tuple[int, int] | None
) -> None:
    partition = replicas.lead(epoch=0, isr=BOTH)
    replicas.append(partition)
    replicas.append(partition)
    replicas.lead(epoch=5, isr=BOTH)
    replicas.append(partition)
    (read,) = replicas.reader.read(
        fetch_params(replica_id=OTHER), [at(offset, last_fetched_epoch=last_epoch)]
    )
    assert read.diverging_epoch == diverging
    known = partition.followers[OTHER].end_offset
    assert known == (offset if diverging is None else -1), "what is not ours does not count"


def test_a_fetch_that_waited_gets_nothing_for_a_replica_that_is_none_any_more(replicas: Replicas) -> None:
    partition = replicas.lead(isr=BOTH)
    replicas.append(partition)
    params = fetch_params(replica_id=OTHER)
    (read,) = replicas.reader.read(params, [at(0)], is_first_try=False)
    assert read.records is not None
    replicas.lead(epoch=1, replicas=(ME,))
    (read,) = replicas.reader.read(params, [at(0)], is_first_try=False)
    assert (read.error_code, read.records) == (NotLeaderOrFollower.code, None)


@pytest.mark.parametrize("offset", [0, 7, -1])
def test_a_broker_without_a_replica_learns_that_before_anything_of_the_log(
    replicas: Replicas, offset: int
) -> None:
    """UNKNOWN_LEADER_EPOCH if it knows the epoch: it may know a later assignment than this broker."""
    partition = replicas.lead(epoch=5, replicas=(ME,))
    replicas.append(partition)
    params = fetch_params(replica_id=OTHER)
    codes = [replicas.reader.read(params, [at(offset, epoch=epoch)])[0].error_code for epoch in (-1, 5)]
    assert codes == [NotLeaderOrFollower.code, UnknownLeaderEpoch.code]


def test_a_leader_of_an_empty_log_agrees_with_any_previous_epoch(replicas: Replicas) -> None:
    partition = replicas.lead(epoch=7)
    assert partition.end_offset_for_epoch(5) == (5, 0)
