"""A fetcher whose leader changes, forgets it, or answers for a time that is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from barnabas.client.channel import Channel
from barnabas.core.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, NetworkException
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.protocol.messages import fetch
from barnabas.replication.follower.fetch_state import FollowedPartition
from barnabas.replication.follower.replica_fetcher import ReplicaFetcher
from barnabas.replication.leadership import LeaderAndIsr
from barnabas.replication.partition import Partition
from tests.unit.replication.support import ME, OTHER, TOPIC_ID, ZERO, Replicas
from tests.unit.replication.test_leadership import order
from tests.unit.storage.support import batch

BOTH = (ME, OTHER)
NO_CHANNEL = cast("Channel", None)


async def unreachable(broker_id: BrokerId) -> Channel:
    raise NetworkException(f"broker {broker_id} cannot be reached")


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(str(tmp_path), connect=unreachable)
    yield made
    await made.close()


def follow(replicas: Replicas, leader_epoch: int) -> tuple[Partition, ReplicaFetcher]:
    partition = replicas.local.get_or_create(ZERO, TOPIC_ID)
    partition.become_follower(LeaderAndIsr(OTHER, leader_epoch, BOTH, BOTH))
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


async def test_records_of_a_former_epoch_end_the_following(replicas: Replicas) -> None:
    partition, fetcher = follow(replicas, 0)
    former = fetcher._followed[ZERO]
    partition.become_follower(LeaderAndIsr(OTHER, 1, BOTH, BOTH))
    fetcher._take(former, fetch.PartitionData(records=memoryview(batch([b"late"]))))
    assert partition.log.log_end_offset == 0
    assert len(fetcher) == 0, "whoever ordered the new epoch begins to follow in it"


async def test_the_start_of_a_log_does_not_pass_what_is_committed_here(replicas: Replicas) -> None:
    """The leader has deleted records that we have yet to fetch, or to hear that they are committed."""
    replicas.append(replicas.lead(epoch=0, isr=BOTH), b"a", b"b")
    partition, fetcher = follow(replicas, 1)
    followed = fetcher._followed[ZERO]
    fetcher._take(followed, fetch.PartitionData(high_watermark=1, log_start_offset=2))
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (1, 0)
    assert followed.failures == 0
    fetcher._take(followed, fetch.PartitionData(high_watermark=2, log_start_offset=2))
    assert (partition.log.high_watermark, partition.log.log_start_offset) == (2, 2)


async def test_who_is_elected_follows_nobody(replicas: Replicas) -> None:
    assert await order(replicas, OTHER, 0) == 0
    fetcher = replicas.fetchers._home[ZERO]
    assert len(fetcher) == 1
    assert await order(replicas, ME, 1) == 0
    assert len(fetcher) == 0
    assert ZERO not in replicas.fetchers._home


async def test_a_log_that_was_moved_while_its_cut_was_synced_has_nothing_to_do_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory that was to be synced is gone by then; the disk to which the log went is all right."""
    disks = [str(tmp_path / "a"), str(tmp_path / "b")]
    replicas = Replicas(*disks, connect=unreachable, segment_bytes=200)
    led = replicas.lead(epoch=0, isr=BOTH)
    for _ in range(6):
        replicas.append(led, b"x" * 100)
    partition, fetcher = follow(replicas, 1)
    followed = fetcher._followed[ZERO]
    diverging = fetch.PartitionData(diverging_epoch=fetch.EpochEndOffset(epoch=0, end_offset=2))
    fetcher._take(followed, diverging)
    in_thread = asyncio.to_thread

    async def move_first(work: Callable[..., object], *arguments: object) -> object:
        monkeypatch.setattr(asyncio, "to_thread", in_thread)
        (other,) = set(disks) - {partition.log.log_directory.path}
        replicas.mover.move(ZERO, other)
        await asyncio.wait(replicas.mover._moves.values())
        assert partition.log.log_directory.path == other
        return await in_thread(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", move_first)
    await fetcher._truncate_diverged()
    assert replicas.log_manager.offline_directories == []
    assert partition.log.log_end_offset == 2
    assert (ZERO in fetcher._followed, ZERO in fetcher._waiting) == (True, False)
    await replicas.close()
