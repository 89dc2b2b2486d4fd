"""High watermark and ISR, with a manual clock."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.cluster.coordination.contract import BadVersion, ConnectionLoss
from barnabas.cluster.stores.isr_store import IneligibleReplica, Joining
from barnabas.cluster.znodes.layout import PartitionState
from barnabas.core.errors import NotLeaderOrFollower, OffsetOutOfRange
from barnabas.core.ids import BrokerId, TopicPartition
from barnabas.replication.leader.isr_changes import REPORT_MS, RETRY_MS
from barnabas.replication.partition.fetching import FetchParams
from barnabas.replication.partition.partition import Partition
from barnabas.replication.partition.remote_replica import RemoteReplica
from tests.support.manual_time import ManualClock
from tests.unit.replication.support import ME, ONE, OTHER, ZERO, Replicas, at

THIRD = BrokerId(3)
ALL = (ME, OTHER, THIRD)
LAG_MS = 30_000


class Store:
    """Completes each write at once, as the test wants."""

    def __init__(self) -> None:
        self.answers: list[int | Exception] = []
        self.written: list[PartitionState] = []
        self.joining: list[Joining | None] = []
        self.withdrawn: list[tuple[int, ...] | None] = []

    def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None,
        withdrawn: PartitionState | None,
        done: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        assert topic_partition == ZERO
        self.written.append(state)
        self.joining.append(joining)
        self.withdrawn.append(None if withdrawn is None else withdrawn.isr)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            failed(answer)
        else:
            done(answer)


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    return Replicas(str(tmp_path))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def keeping(tmp_path: Path, store: Store) -> Replicas:
    """Replicas that keep their ISR in the store."""
    return Replicas(str(tmp_path), store=store)


def lead(replicas: Replicas, epoch: int = 0, isr: tuple[BrokerId, ...] = ALL) -> Partition:
    return replicas.lead(epoch=epoch, isr=isr, replicas=ALL)


def test_the_high_watermark_is_the_smallest_end_of_the_isr(replicas: Replicas) -> None:
    partition = lead(replicas)
    for _ in range(5):
        replicas.append(partition)
    assert partition.log.high_watermark == 0, "nobody has fetched yet"
    replicas.fetched(partition, OTHER, 5)
    assert partition.log.high_watermark == 0
    replicas.fetched(partition, THIRD, 3)
    assert partition.log.high_watermark == 3
    replicas.fetched(partition, THIRD, 5)
    assert partition.log.high_watermark == 5


def test_a_replica_outside_the_isr_does_not_count(replicas: Replicas) -> None:
    partition = lead(replicas, isr=(ME, OTHER))
    replicas.append(partition)
    replicas.fetched(partition, OTHER, 1)
    assert partition.log.high_watermark == 1


def test_a_replica_that_is_about_to_join_holds_the_high_watermark_back(replicas: Replicas) -> None:
    """Or it would run after the end for ever, and never have all that is committed."""
    partition = lead(replicas, isr=(ME, OTHER))
    replicas.append(partition)
    replicas.fetched(partition, THIRD, 1)
    replicas.fetched(partition, OTHER, 1)
    replicas.append(partition)
    replicas.fetched(partition, OTHER, 2)
    assert partition.log.high_watermark == 1, "broker 3 was caught up a moment ago"
    replicas.clock.advance(LAG_MS + 1)
    replicas.fetched(partition, OTHER, 2)
    assert partition.log.high_watermark == 2, "it has had its time"


def test_a_replica_that_is_gone_does_not_hold_the_high_watermark_back(replicas: Replicas) -> None:
    partition = lead(replicas, isr=(ME, OTHER))
    replicas.append(partition)
    replicas.fetched(partition, THIRD, 1)
    replicas.append(partition)
    replicas.dead.add(THIRD)
    replicas.fetched(partition, OTHER, 2)
    assert partition.log.high_watermark == 2


def test_a_new_epoch_forgets_how_far_followers_were(replicas: Replicas) -> None:
    partition = lead(replicas)
    replicas.append(partition)
    replicas.fetched(partition, OTHER, 1)
    lead(replicas, epoch=1)
    replicas.fetched(partition, THIRD, 1)
    assert partition.log.high_watermark == 0, "broker 2 may have truncated meanwhile"


def test_a_fetch_that_diverges_or_is_out_of_range_does_not_count(replicas: Replicas) -> None:
    partition = lead(replicas, epoch=1)
    replicas.append(partition)
    params = FetchParams(OTHER, 0, 1, 1 << 20, read_committed=False)
    (read,) = replicas.reader.read(params, [at(1, last_fetched_epoch=0)])
    assert read.diverging_epoch == (0, 0)
    (read,) = replicas.reader.read(params, [at(7)])
    assert read.error_code == OffsetOutOfRange.code
    assert partition.followers[OTHER].end_offset == -1


def test_strangers_cannot_follow(replicas: Replicas) -> None:
    partition = lead(replicas)
    with pytest.raises(NotLeaderOrFollower):
        replicas.fetched(partition, BrokerId(9), 0)
    with pytest.raises(NotLeaderOrFollower):
        replicas.fetched(partition, ME, 0)


def test_an_earlier_life_of_a_follower_is_refused(replicas: Replicas) -> None:
    partition = lead(replicas)
    replicas.fetched(partition, OTHER, 0, 0, broker_epoch=8)
    with pytest.raises(NotLeaderOrFollower):
        replicas.fetched(partition, OTHER, 0, 0, broker_epoch=7)
    lead(replicas, epoch=1)
    with pytest.raises(NotLeaderOrFollower):
        replicas.fetched(partition, OTHER, 0, 0, broker_epoch=7)


def test_a_burst_of_appends_makes_no_follower_lag() -> None:
    follower = RemoteReplica(OTHER)
    follower.reset(0, 0, is_new_epoch=True, is_in_sync=True)
    clock = ManualClock()
    end = 0
    for _ in range(100):
        clock.advance(LAG_MS / 2)
        behind, end = end, end + 1_000
        follower.fetched(behind, 0, clock.monotonic_ms(), end, -1)
        assert follower.is_caught_up(end, clock.monotonic_ms(), LAG_MS), "it is one fetch behind, always"


def test_a_follower_was_caught_up_when_it_last_fetched_not_now() -> None:
    follower = RemoteReplica(OTHER)
    follower.reset(0, 0, is_new_epoch=True, is_in_sync=True)
    follower.fetched(0, 0, 10, 100, -1)
    assert follower.last_caught_up_ms == 0
    follower.fetched(100, 0, 20, 200, -1)
    assert follower.last_caught_up_ms == 10, "then it was to have all that there was at 10"
    follower.fetched(199, 0, 30, 300, -1)
    assert follower.last_caught_up_ms == 10, "less than there was at 20"
    follower.fetched(300, 0, 40, 300, -1)
    assert follower.last_caught_up_ms == 40


def test_a_follower_that_reads_too_slowly_lags(replicas: Replicas) -> None:
    partition = lead(replicas)
    for number in range(100):
        replicas.append(partition, *([b"x"] * 10))
        replicas.clock.advance(LAG_MS / 10)
        replicas.fetched(partition, OTHER, 10 * (number + 1))
        replicas.fetched(partition, THIRD, number)
    assert partition.lagging_members() == {THIRD}


def test_an_idle_follower_at_the_end_does_not_lag(replicas: Replicas) -> None:
    partition = lead(replicas)
    replicas.append(partition)
    replicas.fetched(partition, OTHER, 1)
    replicas.fetched(partition, THIRD, 1)
    replicas.clock.advance(10 * LAG_MS)
    assert partition.lagging_members() == frozenset()


def test_an_expansion_holds_the_high_watermark_before_it_is_written(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [7]
    keeping.append(partition)
    keeping.fetched(partition, THIRD, 1)
    assert (partition.leadership.isr, partition.leadership.maximal_isr) == (
        frozenset({ME, OTHER}),
        frozenset(ALL),
    )
    keeping.append(partition)
    keeping.clock.advance(LAG_MS + 1)
    keeping.fetched(partition, OTHER, 2)
    assert partition.log.high_watermark == 1, "broker 3 has only one, and is about to count"
    keeping.scheduler.run_due()
    assert (partition.leadership.isr, partition.leadership.partition_epoch) == (frozenset(ALL), 7)
    assert store.written[0].isr == ALL
    assert keeping.isr.expands.value == 1


def test_a_follower_below_the_start_of_the_epoch_does_not_join(keeping: Replicas, store: Store) -> None:
    """A previous leader may have committed more than the new one knows yet."""
    partition = lead(keeping, isr=(ME,))
    for _ in range(4):
        keeping.append(partition)
    partition.log.update_high_watermark(1)
    lead(keeping, epoch=1, isr=(ME, OTHER))
    assert partition.log.high_watermark == 1
    keeping.fetched(partition, THIRD, 2)
    assert partition.leadership.pending_isr is None
    store.answers = [1]
    keeping.fetched(partition, THIRD, 4)
    keeping.scheduler.run_due()
    assert THIRD in partition.leadership.isr


def test_a_shrunken_isr_counts_once_it_is_written(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping)
    store.answers = [1]
    keeping.append(partition)
    keeping.clock.advance(LAG_MS + 1)
    keeping.fetched(partition, OTHER, 1)
    keeping.isr.shrink_all([partition])
    assert partition.log.high_watermark == 0
    keeping.isr.shrink_all([partition])
    keeping.scheduler.run_due()
    assert partition.leadership.isr == {ME, OTHER}
    assert partition.log.high_watermark == 1
    assert len(store.written) == 1, "one change at a time"
    assert keeping.isr.shrinks.value == 1


class WillingStore(Store):
    """Writes everything."""

    def write(
        self,
        topic_partition: TopicPartition,
        state: PartitionState,
        joining: Joining | None,
        withdrawn: PartitionState | None,
        done: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        done(state.state_version + 1)


def test_the_changes_of_a_moment_are_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    replicas = Replicas(str(tmp_path), store=WillingStore())
    led = [replicas.lead(key, isr=ALL, replicas=ALL) for key in (ZERO, ONE)]
    replicas.clock.advance(LAG_MS + 1)
    for partition in led:
        replicas.append(partition)
    replicas.isr.shrink_all(led)
    replicas.scheduler.run_due()
    assert [partition.leadership.isr for partition in led] == [{ME}, {ME}]
    replicas.clock.advance(REPORT_MS)
    replicas.scheduler.run_due()
    lines = [each.message for each in caplog.records if "the ISR is" in each.message]
    assert lines == ["topic-1: the ISR is [1] as of version 1 (and 1 more changed)"]


def test_followers_are_looked_at_as_time_passes(keeping: Replicas, store: Store) -> None:
    """Twice in `replica.lag.time.max.ms`: one that stops fetching is out after one and a half of it."""
    partition = lead(keeping)
    store.answers = [1]
    keeping.start()
    keeping.append(partition)
    written_ms = None
    for passed_ms in range(1_000, 2 * LAG_MS, 1_000):
        keeping.clock.advance(1_000)
        keeping.fetched(partition, OTHER, 1)
        keeping.scheduler.run_due()
        if store.written and written_ms is None:
            written_ms = passed_ms
    assert written_ms is not None
    assert LAG_MS < written_ms <= 1.5 * LAG_MS
    assert partition.leadership.isr == {ME, OTHER}
    keeping.close()
    keeping.clock.advance(LAG_MS)
    assert keeping.scheduler.run_due() == 0, "the timer ends with the broker"


def test_a_change_that_meets_an_unforeseen_error_is_written_again(keeping: Replicas, store: Store) -> None:
    """A pending change blocks every other: giving it up would freeze the ISR."""
    partition = lead(keeping)
    store.answers = [RuntimeError("nobody expected this"), 1]
    keeping.append(partition)
    keeping.clock.advance(LAG_MS + 1)
    keeping.fetched(partition, OTHER, 1)
    keeping.isr.shrink_all([partition])
    keeping.scheduler.run_due()
    assert partition.leadership.isr == set(ALL)
    keeping.clock.advance(RETRY_MS)
    keeping.scheduler.run_due()
    assert partition.leadership.isr == {ME, OTHER}


def test_a_member_that_lost_its_tail_leaves_at_once(keeping: Replicas, store: Store) -> None:
    """It was started again after its machine lost power; elected now, it would lose what is committed."""
    partition = lead(keeping)
    store.answers = [1, 2]
    for _ in range(3):
        keeping.append(partition)
    keeping.fetched(partition, OTHER, 3)
    keeping.fetched(partition, THIRD, 3)
    assert partition.log.high_watermark == 3
    keeping.fetched(partition, THIRD, 3)
    assert partition.leadership.pending_isr is None
    keeping.fetched(partition, THIRD, 1, 0, broker_epoch=9)
    keeping.scheduler.run_due()
    assert [each.isr for each in store.written] == [(ME, OTHER)]
    keeping.fetched(partition, THIRD, 2, 0, broker_epoch=9)
    assert partition.leadership.pending_isr is None, "it is out"
    keeping.fetched(partition, THIRD, 3, 0, broker_epoch=9)
    keeping.scheduler.run_due()
    assert partition.leadership.isr == set(ALL)


def test_a_follower_that_the_controller_says_is_gone_does_not_join(keeping: Replicas, store: Store) -> None:
    """Its last fetch may have been on its way for a while."""
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [1]
    keeping.dead.add(THIRD)
    keeping.fetched(partition, THIRD, 0)
    assert partition.leadership.pending_isr is None
    keeping.dead.clear()
    keeping.fetched(partition, THIRD, 0)
    keeping.scheduler.run_due()
    assert partition.leadership.isr == set(ALL)


def test_a_refused_change_waits_for_the_controllers_word(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping)
    store.answers = [BadVersion(), 5]
    keeping.append(partition)
    keeping.clock.advance(LAG_MS + 1)
    keeping.fetched(partition, OTHER, 1)
    keeping.isr.shrink_all([partition])
    keeping.scheduler.run_due()
    assert partition.leadership.isr == set(ALL)
    keeping.isr.shrink_all([partition])
    keeping.scheduler.run_due()
    assert len(store.written) == 1, "nothing is tried with a version known to be old"
    lead(keeping, epoch=1)
    keeping.clock.advance(LAG_MS + 1)
    keeping.fetched(partition, OTHER, 1)
    keeping.isr.shrink_all([partition])
    keeping.scheduler.run_due()
    assert partition.leadership.isr == {ME, OTHER}
    assert keeping.isr.failed.value == 1


def test_a_store_that_does_not_answer_is_asked_again(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [ConnectionLoss(), ConnectionLoss(), 3]
    keeping.fetched(partition, THIRD, 0)
    for tried in (1, 2, 3):
        keeping.scheduler.run_due()
        assert len(store.written) == tried
        keeping.clock.advance(RETRY_MS)
    assert partition.leadership.isr == set(ALL)


def test_a_follower_joins_in_the_epoch_in_which_it_caught_up(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [1, 2]
    keeping.fetched(partition, THIRD, 0, 0, broker_epoch=8)
    keeping.scheduler.run_due()
    assert store.joining == [Joining(THIRD, 8)]
    keeping.append(partition)
    keeping.clock.advance(LAG_MS + 1)
    keeping.fetched(partition, OTHER, 1)
    keeping.isr.shrink_all([partition])
    keeping.scheduler.run_due()
    assert store.joining[1:] == [None], "who leaves need not be there"


def test_a_follower_that_was_started_again_does_not_join(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [IneligibleReplica(), 1]
    keeping.append(partition)
    keeping.fetched(partition, THIRD, 1, 0, broker_epoch=8)
    assert partition.leadership.maximal_isr == set(ALL)
    keeping.scheduler.run_due()
    assert partition.leadership.isr == partition.leadership.maximal_isr == {ME, OTHER}
    keeping.fetched(partition, OTHER, 1)
    assert partition.log.high_watermark == 1
    keeping.fetched(partition, THIRD, 0, 0, broker_epoch=9)
    assert partition.leadership.pending_isr is None, "it has to catch up first"
    keeping.fetched(partition, THIRD, 1, 0, broker_epoch=9)
    assert partition.leadership.pending_isr is None, "the store is not asked about it all the time"
    keeping.clock.advance(RETRY_MS)
    keeping.fetched(partition, THIRD, 1, 0, broker_epoch=9)
    keeping.scheduler.run_due()
    assert partition.leadership.isr == set(ALL)
    assert store.joining[1:] == [Joining(THIRD, 9)]


def test_a_follower_that_may_have_joined_counts_until_that_is_overwritten(
    keeping: Replicas, store: Store
) -> None:
    """The answer to the first attempt was lost, and then the follower was started again."""
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [ConnectionLoss(), IneligibleReplica(), ConnectionLoss(), 5]
    keeping.fetched(partition, THIRD, 0, 0, broker_epoch=8)
    for written in (1, 3):
        keeping.scheduler.run_due()
        assert len(store.written) == written
        assert THIRD in partition.leadership.maximal_isr
        keeping.clock.advance(RETRY_MS)
    keeping.scheduler.run_due()
    assert [each.isr for each in store.written] == [ALL, ALL, (ME, OTHER), (ME, OTHER)]
    assert store.joining[2:] == [None, None]
    assert store.withdrawn[2:] == [ALL, ALL], "which the store may hold"
    assert partition.leadership.isr == partition.leadership.maximal_isr == {ME, OTHER}
    assert partition.leadership.partition_epoch == 5


def test_a_change_that_the_controller_overtakes_is_dropped(keeping: Replicas, store: Store) -> None:
    partition = lead(keeping, isr=(ME, OTHER))
    store.answers = [3]
    keeping.fetched(partition, THIRD, 0)
    lead(keeping, epoch=1, isr=(ME,))
    keeping.scheduler.run_due()
    assert partition.leadership.isr == {ME}
    assert store.written == [], "nor is it written any more"


def test_an_isr_of_a_previous_epoch_does_not_override_the_controllers_word(replicas: Replicas) -> None:
    """It was written before the controller decided, and the answer came after it."""
    partition = lead(replicas)
    pending = partition.leadership.propose_isr(frozenset((ME, OTHER)))
    lead(replicas, epoch=1, isr=(ME,))
    assert not partition.leadership.isr_written(pending, 9)
    leadership = partition.leadership
    assert (leadership.isr, leadership.maximal_isr, leadership.partition_epoch) == (
        frozenset({ME}),
        frozenset({ME}),
        0,
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_high_watermark_is_below_every_member_of_the_isr(
    keeping: Replicas, store: Store, seed: int
) -> None:
    chance = random.Random(seed)
    partition = lead(keeping)
    epoch = highest = version = 0
    ends = {OTHER: 0, THIRD: 0}
    for _ in range(200):
        event = chance.random()
        broker_id = chance.choice([OTHER, THIRD])
        if event < 0.35:
            keeping.append(partition)
        elif event < 0.75:
            ends[broker_id] = chance.randint(ends[broker_id], partition.log.log_end_offset)
            version += 1
            answers: list[int | Exception] = [version, version, BadVersion()]
            store.answers.append(chance.choice(answers))
            keeping.fetched(partition, broker_id, ends[broker_id])
        elif event < 0.85:
            keeping.clock.advance(chance.choice([1, LAG_MS]))
            version += 1
            store.answers.append(version)
            keeping.isr.shrink_all([partition])
        elif event < 0.92:
            keeping.scheduler.run_due()
        elif event < 0.97:
            epoch += 1
            lead(keeping, epoch=epoch, isr=tuple(partition.leadership.isr))
            ends = dict.fromkeys(ends, 0)
            highest = min(highest, partition.log.high_watermark)
        assert partition.log.high_watermark >= highest
        if partition.log.high_watermark > highest:
            for member in partition.leadership.isr - {ME}:
                follower = partition.followers[member]
                assert follower.end_offset >= partition.log.high_watermark
        highest = partition.log.high_watermark
