"""Truncation offset of a follower: by epochs, step by step, until both histories are one."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.messages.fetch import EpochEndOffset
from barnabas.replication.follower.truncation import truncation_offset
from barnabas.storage.log.parts.leader_epoch_cache import LeaderEpochCache

History = list[int]
"""The leader epoch of each offset."""


def cache_of(history: History) -> LeaderEpochCache:
    cache = LeaderEpochCache([])
    for offset, epoch in enumerate(history):
        cache.assign(epoch, offset)
    return cache


def ask_leader(leader: History, leader_epoch: int, epoch: int, fetch_offset: int) -> EpochEndOffset | None:
    """Result of `Partition.read` for a follower whose last batch is of `epoch`."""
    cache = cache_of(leader)
    if epoch == leader_epoch:
        found, end_offset = epoch, len(leader)
    elif cache.latest_epoch < epoch < leader_epoch:
        found, end_offset = (epoch if cache.latest_epoch == -1 else cache.latest_epoch), len(leader)
    else:
        found, end_offset = cache.end_offset_for(epoch, len(leader))
    if found < epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch=found, end_offset=end_offset)
    return None


def reconcile(leader: History, leader_epoch: int, follower: History) -> History:
    for _ in range(100):
        if not follower:
            return follower
        answer = ask_leader(leader, leader_epoch, follower[-1], len(follower))
        if answer is None:
            return follower
        cache = cache_of(follower)
        end_offset = len(follower)
        cut = truncation_offset(
            lambda epoch, cache=cache, end=end_offset: cache.end_offset_for(epoch, end),  # type: ignore[misc]
            end_offset,
            answer,
        )
        assert 0 <= cut < end_offset, "every answer makes progress"
        follower = follower[:cut]
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("leader", "follower", "kept"),
    [
        ([0, 0, 2, 2, 4], [0, 0, 1, 1, 3, 3], 2),
        ([0, 0, 2], [0, 0, 1, 1, 1], 2),
        ([0, 0, 1], [0, 0, 0, 0], 2),
        ([0, 0, 0], [0, 0, 0, 0], 3),
        ([3, 3], [0, 1, 2], 0),
        ([], [0, 1], 0),
        ([0, 0, 1, 1], [0, 0], 2),
    ],
)
def test_the_common_history_is_kept(leader: History, follower: History, kept: int) -> None:
    assert reconcile(leader, 9, follower) == leader[:kept]


@pytest.mark.parametrize(
    ("leader_epoch", "leader_end", "cut"),
    [
        pytest.param(1, 5, 4, id="ours of it is shorter"),
        pytest.param(1, 3, 3, id="the leader's of it is shorter"),
        pytest.param(2, 7, 4, id="we have none of it: KIP-279"),
        pytest.param(2, 3, 4, id="we have none of it, and the leader's ends early"),
        pytest.param(-1, 3, 3, id="the leader knows none"),
        pytest.param(-1, 30, 8, id="the leader knows none, and is longer"),
    ],
)
def test_a_log_is_cut_where_the_histories_may_have_parted(
    leader_epoch: int, leader_end: int, cut: int
) -> None:
    cache = cache_of([0, 0, 1, 1, 3, 3, 3, 3])
    answer = EpochEndOffset(epoch=leader_epoch, end_offset=leader_end)
    assert truncation_offset(lambda epoch: cache.end_offset_for(epoch, 8), 8, answer) == cut


@pytest.mark.parametrize("seed", range(200))
def test_two_histories_always_become_one(seed: int) -> None:
    """Two logs under elections of any kind, clean or not: each epoch has one leader, which appends to
    what it has; the other may copy some of that, after agreeing with it."""
    chance = random.Random(seed)
    logs: list[History] = [[], []]
    values: dict[tuple[int, int], int] = {}
    """Writer of (epoch, offset): there is one such record in the world."""
    for epoch in range(chance.randint(1, 12)):
        leader = chance.randrange(2)
        for _ in range(chance.randint(0, 3)):
            values[epoch, len(logs[leader])] = leader
            logs[leader].append(epoch)
        if chance.random() < 0.4:
            other = 1 - leader
            agreed = reconcile(logs[leader], epoch, logs[other])
            assert agreed == logs[leader][: len(agreed)], "the follower has records that the leader has not"
            logs[other] = logs[leader][: chance.randint(len(agreed), len(logs[leader]))]
    agreed = reconcile(logs[0], 100, logs[1])
    assert agreed == logs[0][: len(agreed)]
    common = 0
    while common < min(map(len, logs)) and logs[0][common] == logs[1][common]:
        common += 1
    assert len(agreed) == common, "not more is thrown away than must be"
