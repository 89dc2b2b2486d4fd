"""Memory that is kept has an owner, a limit for each, and is given back when the state goes."""

from __future__ import annotations

from copy import copy

from barnabas.core.bounds.kept_memory import MemoryAccount, MemoryLimits, MemoryOwner, Reservation
from barnabas.core.reporting.metrics import Metrics, render_prometheus

ALICE_1, ALICE_2 = MemoryOwner("alice", "1"), MemoryOwner("alice", "2")


def account(metrics: Metrics | None = None) -> MemoryAccount:
    limits = MemoryLimits(connection_bytes_max=100, principal_bytes_max=150, broker_bytes_max=300)
    return MemoryAccount("sessions", limits, metrics or Metrics())


class State:
    def __init__(self, memory: Reservation | None) -> None:
        self.memory = memory


def test_a_connection_and_a_principal_have_a_limit_each() -> None:
    memory = account()
    kept = [memory.reserve(ALICE_1, 100)]
    assert memory.reserve(ALICE_1, 1) is None
    kept.append(memory.reserve(ALICE_2, 50))
    assert memory.reserve(ALICE_2, 1) is None
    assert all(kept)
    assert (memory.kept_for("alice"), memory.kept_bytes) == (150, 150)
    assert (memory.kept_by("1"), memory.kept_by("2")) == (100, 50)


def test_no_principal_has_more_than_is_left_for_the_others() -> None:
    memory = account()
    kept, shares = [], []
    for number in range(6):
        owners = [MemoryOwner(f"user {number}", f"{number}.{each}") for each in range(2)]
        share = 0
        while got := memory.reserve(owners[share // 100], 1):
            kept.append(got)
            share += 1
            if share == 200:
                break
        shares.append(share)
    assert shares == [150, 75, 37, 19, 9, 5]


def test_memory_is_given_back_with_the_last_object_that_holds_it() -> None:
    memory = account()
    first = State(memory.reserve(ALICE_1, 60))
    second = copy(first)
    del first
    assert memory.kept_bytes == 60
    del second
    assert (memory.kept_bytes, memory.kept_for("alice"), memory.kept_by("1")) == (0, 0, 0)


def test_a_reservation_is_released_once() -> None:
    memory = account()
    reservation = memory.reserve(ALICE_1, 60)
    assert reservation is not None
    reservation.release()
    reservation.release()
    del reservation
    assert memory.kept_bytes == 0


def test_a_reservation_grows_within_the_limits_and_is_not_made_smaller() -> None:
    memory = account()
    reservation = memory.reserve(ALICE_1, 60)
    assert reservation is not None
    assert memory.grow(reservation, 90)
    assert memory.grow(reservation, 10)
    assert not memory.grow(reservation, 101)
    assert (reservation.size_bytes, memory.kept_bytes) == (90, 90)


def test_a_reservation_shrinks_and_is_not_made_larger() -> None:
    memory = account()
    reservation = memory.reserve(ALICE_1, 60)
    assert reservation is not None
    memory.shrink(reservation, 20)
    memory.shrink(reservation, 40)
    assert (reservation.size_bytes, memory.kept_bytes, memory.kept_for("alice")) == (20, 20, 20)


def test_state_that_was_there_before_is_counted_and_never_refused() -> None:
    memory = account()
    loaded = memory.claim(290)
    assert memory.reserve(ALICE_1, 6) is None
    assert memory.grow(loaded, 500)
    assert memory.kept_bytes == 500


def test_each_kind_is_seen_in_the_metrics() -> None:
    metrics = Metrics()
    memory = account(metrics)
    kept = memory.reserve(ALICE_1, 60)
    assert kept is not None
    memory.reserve(ALICE_1, 60)
    text = render_prometheus(metrics)
    assert 'barnabas_kept_memory_bytes{kind="sessions"} 60' in text
    assert 'barnabas_kept_memory_limit_bytes{kind="sessions"} 300' in text
    assert 'barnabas_kept_memory_principals{kind="sessions"} 1' in text
    assert 'barnabas_kept_memory_refused_total{kind="sessions"} 1' in text
