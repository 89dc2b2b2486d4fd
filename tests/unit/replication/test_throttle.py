"""Replication quotas, second by second."""

from __future__ import annotations

from pathlib import Path

from barnabas.core.ids import BrokerId
from barnabas.replication.partition.throttle import SECONDS, UNTHROTTLED, ReplicationThrottle, is_listed
from tests.support.manual_time import ManualClock
from tests.unit.replication.support import ME, OTHER, Replicas, at, fetch_params, offsets_of

THIRD = BrokerId(3)


def test_members_of_the_isr_are_not_held(tmp_path: Path) -> None:
    """A quota that threw them out would do harm."""
    replicas = Replicas(str(tmp_path), leader_replication_throttled_replicas=("*",))
    partition = replicas.lead(isr=(ME, OTHER), replicas=(ME, OTHER, THIRD))
    replicas.append(partition)
    replicas.config.leader_replication_throttled_rate = 1

    def read_by(broker_id: BrokerId) -> list[tuple[int, int]]:
        (read,) = replicas.reader.read(fetch_params(replica_id=broker_id), [at(0)])
        return offsets_of(read)

    assert read_by(THIRD) == [(0, 0)], "the quota is not used up yet"
    assert replicas.reader.throttle.is_exceeded
    assert read_by(OTHER) == [(0, 0)]
    assert read_by(THIRD) == []


def throttle(clock: ManualClock, rate: int) -> ReplicationThrottle:
    return ReplicationThrottle(clock, lambda: rate, lambda _: ("*",))


def test_without_a_rate_nothing_is_held() -> None:
    quota = throttle(ManualClock(), UNTHROTTLED)
    quota.record(1 << 60)
    assert quota.is_unlimited
    assert not quota.is_exceeded


def test_a_burst_is_paid_for_over_the_following_seconds() -> None:
    clock = ManualClock()
    quota = throttle(clock, 1_000)
    quota.record(1_000)
    assert not quota.is_exceeded
    quota.record(4_000)
    assert quota.is_exceeded
    clock.advance(4_900)
    assert quota.is_exceeded
    clock.advance(200)
    assert not quota.is_exceeded


def test_the_past_is_forgotten() -> None:
    clock = ManualClock()
    quota = throttle(clock, 1)
    quota.record(1 << 40)
    clock.advance(SECONDS * 1_000 - 1)
    assert quota.is_exceeded
    clock.advance(1)
    assert not quota.is_exceeded


def test_replicas_are_listed_by_partition_and_broker() -> None:
    assert is_listed(("*",), 3, BrokerId(1))
    assert is_listed(("0:1", "3:1"), 3, BrokerId(1))
    assert not is_listed(("3:11", "1:3"), 3, BrokerId(1))
    assert not is_listed((), 3, BrokerId(1))
