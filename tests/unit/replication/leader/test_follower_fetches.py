"""Follower's session: looks only at partitions that may have changed, and misses none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.replication.leader.delayed_delete_records import PendingDeletion
from barnabas.replication.leader.fetch_session import FetchSession
from barnabas.replication.leader.fetch_session_cache import FOLLOWER_GONE_MS, FetchContext, FetchSessionCache
from barnabas.replication.leader.replica_reader import SWEEP_MS
from barnabas.replication.partition.fetching import PartitionFetch, PartitionRead
from barnabas.replication.partition.partition import Partition
from tests.unit.replication.leader.test_isr_changes import Store
from tests.unit.replication.support import (
    ME,
    ONE,
    OTHER,
    TOPIC_ID,
    ZERO,
    Replicas,
    at,
    fetch_params,
    offsets_of,
)

THIRD = BrokerId(3)
BOTH = (ME, OTHER)
Told = list[tuple[TopicPartition, PartitionRead]]


class Follower:
    """Broker 2, which follows partitions of broker 1; `told` grows with each response."""

    def __init__(self, replicas: Replicas, *asks: PartitionFetch) -> None:
        self.replicas = replicas
        self.params = fetch_params(replica_id=OTHER)
        self.sessions = FetchSessionCache(
            10, replicas.clock, random.Random(1), Metrics(), replicas.delayed.subscriptions
        )
        self.told: list[Told] = []
        self.epoch = 0
        self.id = 0
        self.fetch(*asks)

    def fetch(self, *asks: PartitionFetch, forget: Sequence[tuple[Uuid | str, int]] = ()) -> None:
        context = self.sessions.context(
            self.id, self.epoch, asks, forget, uses_topic_ids=True, is_from_follower=True
        )
        self.id = context.session_id
        self.epoch += 1
        if context.following is not None:
            self.replicas.fetch_for_follower(
                self.params, context.following, lambda due, reads: self._answer(context, due, reads)
            )
        else:
            self._answer(context, asks, self.replicas.reader.read(self.params, asks))

    def _answer(
        self, context: FetchContext, asks: Sequence[PartitionFetch], reads: list[PartitionRead]
    ) -> None:
        self.told.append([(ask.topic_partition, read) for ask, read in context.to_send(asks, reads)])

    @property
    def session(self) -> FetchSession:
        return self.sessions._sessions[self.id]

    def is_waiting(self, answers: int) -> bool:
        return len(self.told) == answers


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


def lead(replicas: Replicas, key: TopicPartition = ZERO) -> Partition:
    return replicas.lead(key, isr=BOTH, replicas=BOTH)


def of_epoch(offset: int, key: TopicPartition = ZERO) -> PartitionFetch:
    return at(offset, key, epoch=0)


def test_partitions_of_which_a_follower_has_everything_are_not_looked_at_again(replicas: Replicas) -> None:
    lead(replicas, ZERO)
    lead(replicas, ONE)
    follower = Follower(replicas, of_epoch(0, ZERO), of_epoch(0, ONE))
    follower.fetch()
    assert follower.session.changed == {}
    assert follower.is_waiting(answers=1)


def test_an_append_ends_the_waiting_and_only_its_partition_is_mentioned(replicas: Replicas) -> None:
    lead(replicas, ZERO)
    one = lead(replicas, ONE)
    follower = Follower(replicas, of_epoch(0, ZERO), of_epoch(0, ONE))
    follower.fetch()
    replicas.append(one)
    ((key, read),) = follower.told[-1]
    assert (key, offsets_of(read)) == (ONE, [(0, 0)])
    assert list(follower.session.changed) == [(TOPIC_ID, 1)]


def test_what_was_sent_is_sent_again_until_the_follower_has_it(replicas: Replicas) -> None:
    partition = lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    replicas.append(partition)
    for _ in range(2):
        follower.fetch()
        assert offsets_of(follower.told[-1][0][1]) == [(0, 0)]
    follower.fetch(of_epoch(1))
    replicas.pass_time(500)
    follower.fetch()
    assert follower.session.changed == {}


def test_the_high_watermark_that_a_follower_moved_is_told_to_it(replicas: Replicas) -> None:
    partition = lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    replicas.append(partition)
    follower.fetch()
    follower.fetch(of_epoch(1))
    assert partition.log.high_watermark == 1
    replicas.pass_time(500)
    ((_, read),) = follower.told[-1]
    assert (read.records, read.high_watermark) == (None, 1)


def test_the_high_watermark_that_another_follower_moved_is_in_the_next_answer(replicas: Replicas) -> None:
    """It does not end the waiting; but neither does it wait for the next look at everything."""
    partition = replicas.lead(ZERO, isr=(ME, OTHER, THIRD), replicas=(ME, OTHER, THIRD))
    follower = Follower(replicas, of_epoch(0))
    replicas.append(partition)
    follower.fetch(of_epoch(1))
    replicas.pass_time(500)
    follower.fetch()
    assert follower.session.changed == {}
    answers = len(follower.told)
    replicas.fetched(partition, THIRD, 1, 0)
    assert partition.log.high_watermark == 1
    assert follower.is_waiting(answers)
    replicas.pass_time(500)
    ((_, read),) = follower.told[-1]
    assert (read.records, read.high_watermark) == (None, 1)


def test_a_partition_that_is_stopped_is_an_error_at_once(replicas: Replicas) -> None:
    lead(replicas, ZERO)
    lead(replicas, ONE)
    follower = Follower(replicas, of_epoch(0, ZERO), of_epoch(0, ONE))
    follower.fetch()
    replicas.local.stop(ONE, delete=True)
    ((key, read),) = follower.told[-1]
    assert key == ONE
    assert read.error_code


def test_a_log_start_that_moved_unheard_is_noticed_when_all_are_looked_at(replicas: Replicas) -> None:
    partition = lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    replicas.append(partition)
    follower.fetch(of_epoch(1))
    replicas.pass_time(500)
    follower.fetch()
    replicas.pass_time(500)
    partition.log.maybe_increment_log_start_offset(1, "retention")
    replicas.pass_time(SWEEP_MS)
    follower.fetch()
    replicas.pass_time(500)
    ((_, read),) = follower.told[-1]
    assert read.log_start_offset == 1


def test_deleted_records_are_news_for_the_next_fetch(replicas: Replicas) -> None:
    partition = lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    replicas.append(partition)
    follower.fetch(of_epoch(1))
    replicas.pass_time(500)
    follower.fetch()
    assert follower.session.changed == {}
    partition.delete_records_before(1)
    replicas.await_deletion(1_000, [PendingDeletion(partition, 1)], lambda: None)
    replicas.pass_time(500)
    ((_, read),) = follower.told[-1]
    assert read.log_start_offset == 1


def test_a_follower_with_everything_stays_caught_up_while_nothing_happens(replicas: Replicas) -> None:
    partition = lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    for _ in range(100):
        follower.fetch()
        replicas.pass_time(500)
    replicas.append(partition)
    replicas.pass_time(replicas.config.replica_lag_time_max_ms - SWEEP_MS - 500)
    assert partition.lagging_members() == frozenset()
    replicas.pass_time(SWEEP_MS + 501)
    assert partition.lagging_members() == {OTHER}


def test_a_follower_that_registered_again_is_known_by_its_new_epoch(replicas: Replicas) -> None:
    """It has everything, so nothing else would make us look at it; it joins the ISR by this epoch."""
    partition = lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    for epoch in (8, 9):
        follower.params = fetch_params(replica_id=OTHER, broker_epoch=epoch)
        follower.fetch(of_epoch(0))
        replicas.pass_time(500)
        assert partition.followers[OTHER].broker_epoch == epoch
    follower.params = fetch_params(replica_id=OTHER, broker_epoch=10)
    follower.session.mark_all()
    follower.fetch()
    assert partition.followers[OTHER].broker_epoch == 10


def test_a_follower_with_everything_is_looked_at_until_it_is_in_the_isr(tmp_path: Path) -> None:
    """It could not join when it caught up, and fetches nothing more."""
    replicas = Replicas(str(tmp_path), store=Store())
    partition = replicas.lead(ZERO, isr=(ME,), replicas=BOTH)
    replicas.dead.add(OTHER)
    follower = Follower(replicas, of_epoch(0))
    follower.fetch()
    replicas.pass_time(500)
    assert partition.leadership.pending_isr is None
    replicas.dead.clear()
    follower.fetch()
    assert partition.leadership.maximal_isr == {ME, OTHER}


def test_a_busy_partition_does_not_keep_the_others_waiting(replicas: Replicas) -> None:
    zero, one = lead(replicas, ZERO), lead(replicas, ONE)
    follower = Follower(replicas, of_epoch(0, ZERO), of_epoch(0, ONE))
    for partition in (zero, one):
        replicas.append(partition)
    follower.params = fetch_params(replica_id=OTHER, max_bytes=1)
    follower.fetch()
    follower.fetch()
    first, second = follower.told[-2:]
    with_records = [[key for key, read in each if read.records is not None] for each in (first, second)]
    assert with_records == [[ZERO], [ONE]]


def test_what_a_session_forgets_or_leaves_behind_is_not_marked_any_more(replicas: Replicas) -> None:
    lead(replicas, ZERO)
    lead(replicas, ONE)
    follower = Follower(replicas, of_epoch(0, ZERO), of_epoch(0, ONE))
    follower.fetch(forget=[(TOPIC_ID, 1)])
    assert replicas.delayed.subscriptions.mark_changed(ONE) == ()
    assert replicas.delayed.subscriptions.mark_changed(ZERO) == (follower.session,)
    follower.fetch(forget=[(TOPIC_ID, 0)])
    assert len(replicas.delayed.subscriptions) == 0
    assert len(follower.sessions) == 0


def test_a_topic_made_again_keeps_its_mark_when_the_old_one_is_forgotten(replicas: Replicas) -> None:
    lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    other_id = Uuid(bytes(16 * [9]))
    anew = PartitionFetch("topic", other_id, 0, 0, 1 << 20, 0, -1, log_start_offset=0)
    follower.fetch(anew, forget=[(TOPIC_ID, 0)])
    assert replicas.delayed.subscriptions.mark_changed(ZERO) == (follower.session,)
    assert (other_id, 0) in follower.session.changed


def test_sessions_of_silent_followers_end_when_another_begins(replicas: Replicas) -> None:
    lead(replicas)
    follower = Follower(replicas, of_epoch(0))
    replicas.pass_time(FOLLOWER_GONE_MS + 1)
    follower.id = follower.epoch = 0
    follower.fetch(of_epoch(0))
    assert len(follower.sessions) == 1
    assert replicas.delayed.subscriptions.mark_changed(ZERO) == (follower.session,)


def test_a_waiting_fetch_looks_at_a_marked_partition_once(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a thousand partitions that change together would cost a million looks."""
    partitions = [lead(replicas, TopicPartition("topic", number)) for number in range(50)]
    asks = [of_epoch(0, partition.topic_partition) for partition in partitions]
    follower = Follower(replicas, *asks)
    follower.fetch()
    looks: list[TopicPartition] = []
    find = replicas.table.partition

    def looked(topic: str, index: int) -> object:
        looks.append(TopicPartition(topic, index))
        return find(topic, index)

    monkeypatch.setattr(replicas.table, "partition", looked)
    for partition in partitions:
        replicas.delayed.complete_all(partition.topic_partition)
    assert follower.is_waiting(answers=1)
    assert len(looks) == 50
