"""Which refusal a client gets: the epoch it believes in is looked at before who leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.core.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower, UnknownLeaderEpoch
from barnabas.replication.leadership import LeaderAndIsr
from barnabas.replication.partition import Partition
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
