"""A fetcher whose leader changes, forgets it, or answers for a time that is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from barnabas.client.channel import Channel
from barnabas.core.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, NetworkException
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.protocol.messages import fetch
from barnabas.replication.fetch_state import FollowedPartition
from barnabas.replication.partition import Partition
from barnabas.replication.replica_fetcher import ReplicaFetcher
from tests.unit.replication.support import ME, OTHER, TOPIC_ID, ZERO, Replicas

BOTH = (ME, OTHER)
NO_CHANNEL = cast("Channel", None)


async def unreachable(broker_id: BrokerId) -> Channel:
    raise NetworkException(f"broker {broker_id} cannot be reached")


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(str(tmp_path))
    made._connect = unreachable
    yield made
    await made.close()


def follow(replicas: Replicas, leader_epoch: int) -> tuple[Partition, ReplicaFetcher]:
    partition = replicas.get_or_create(ZERO, TOPIC_ID)
    partition.become_follower(OTHER, leader_epoch, BOTH, BOTH)
    replicas.fetchers.follow(partition)
    return partition, replicas.fetchers._home[ZERO]


@pytest.mark.parametrize("error", [FetchSessionIdNotFound, InvalidFetchSessionEpoch])
async def test_a_leader_that_has_lost_the_session_is_told_everything_again(
    replicas: Replicas, error: type[FetchSessionIdNotFound]
) -> None:
    _, fetcher = follow(replicas, 0)
    session = fetcher._session
    session.fill(fetch.FetchRequest(), 1_000)
    session.answered(77)
    fetcher._apply(fetch.FetchResponse(error_code=error.code))
    request = fetch.FetchRequest()
    session.fill(request, 1_000)
    assert (request.session_id, request.session_epoch, len(request.topics)) == (0, 0, 1)


@pytest.mark.parametrize("is_followed_again", [True, False])
async def test_offsets_that_were_asked_of_a_former_leader_cut_nothing(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, is_followed_again: bool
) -> None:
    """The controller names another while the question is on its way."""
    replicas.append(replicas.lead(epoch=0), b"a", b"b")
    partition, fetcher = follow(replicas, 1)
    lost = fetcher._followed[ZERO]
    fetcher._refused(lost, 1)
    assert lost.is_out_of_range

    async def answer_late(
        channel: Channel, asked: list[FollowedPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        if is_followed_again:
            follow(replicas, 2)
        else:
            replicas.fetchers.unfollow(ZERO)
        return {ZERO: 0}

    monkeypatch.setattr(fetcher, "_list_offsets", answer_late)
    await fetcher._find_offsets(NO_CHANNEL, [lost])
    assert partition.log.log_end_offset == 2
    assert fetcher._followed.get(ZERO) is not lost
