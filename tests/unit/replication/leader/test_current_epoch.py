"""Refusals of clients: the leader epoch is checked before the leadership."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower, UnknownLeaderEpoch
from barnabas.replication.partition.leadership import LeaderAndIsr
from barnabas.replication.partition.partition import Partition
from tests.unit.replication.support import ME, OTHER, Replicas, fetch_params


@pytest.fixture
def follower(tmp_path: Path) -> Partition:
    partition = Replicas(str(tmp_path)).lead(epoch=4)
    partition.become_follower(LeaderAndIsr(OTHER, 5, (ME, OTHER), (ME, OTHER)))
    return partition


@pytest.mark.parametrize(
    ("believed", "refusal"),
    [(-1, NotLeaderOrFollower), (5, NotLeaderOrFollower), (4, FencedLeaderEpoch), (6, UnknownLeaderEpoch)],
)
def test_a_follower_that_is_behind_says_so_instead_of_sending_away(
    follower: Partition, believed: int, refusal: type[KafkaError]
) -> None:
    with pytest.raises(refusal):
        follower.leadership.check_leader(believed)
    with pytest.raises(refusal):
        follower.leadership.check_readable(fetch_params(), believed)


def test_the_end_of_the_log_belongs_to_the_leader_epoch_and_records_to_theirs(tmp_path: Path) -> None:
    """A consumer commits the epoch beside its offset, and later asks for the end of that epoch."""
    replicas = Replicas(str(tmp_path))
    partition = replicas.lead(epoch=4)
    replicas.append(partition)
    replicas.lead(epoch=7)
    assert [partition.epoch_for_offset(offset) for offset in (0, 1)] == [4, 7]
