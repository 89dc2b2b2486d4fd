from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.manual_time import ManualClock

from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.purgatory.purgatory import DelayedOperation, Purgatory
from barnabas.purgatory.timer import Timer

PURGE_INTERVAL = 1_000


class Wait(DelayedOperation):
    """Completes when `ready` is set, and tells what was called."""

    def __init__(self, delay_ms: float = 1_000, then: Callable[[], None] | None = None) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.tries = 0
        self.calls: list[str] = []
        self.then = then

    def try_complete(self) -> bool:
        self.tries += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.calls.append("complete")
        if self.then is not None:
            self.then()

    def on_expiration(self) -> None:
        self.calls.append("expire")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timer(clock: ManualClock) -> Timer:
    return Timer(clock)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("Fetch", timer, Metrics(), PURGE_INTERVAL)


def test_an_operation_that_is_complete_at_once_is_never_watched(purgatory: Purgatory) -> None:
    operation = Wait()
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.calls == ["complete"]
    assert (purgatory.watched, purgatory.pending) == (0, 0)


def test_at_the_end_everything_that_waits_is_answered_once(purgatory: Purgatory) -> None:
    operations = [Wait() for _ in range(3)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.complete_all(lambda each: each is not operations[0]) == 2
    assert [operation.calls for operation in operations] == [[], ["complete"], ["complete"]]
    assert purgatory.complete_all() == 1
    assert (purgatory.watched, purgatory.pending) == (0, 0)


def test_an_operation_is_tried_once_then_watched_under_every_key(purgatory: Purgatory) -> None:
    operation = Wait()
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert operation.tries == 1
    assert (purgatory.watched, purgatory.pending) == (2, 1)


def test_an_event_completes_exactly_once_and_stops_the_clock(
    purgatory: Purgatory, timer: Timer, clock: ManualClock
) -> None:
    operation = Wait(100)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    operation.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.check_and_complete("b") == 0
    assert (timer.pending, purgatory.pending, purgatory.watched) == (0, 0, 0)
    clock.advance(ms=200)
    timer.advance()
    assert operation.calls == ["complete"]


def test_the_timeout_completes_and_then_tells_of_the_expiration(
    purgatory: Purgatory, timer: Timer, clock: ManualClock
) -> None:
    operation = Wait(100)
    purgatory.try_complete_else_watch(operation, ["a"])
    clock.advance(ms=100)
    timer.advance()
    assert operation.calls == ["complete", "expire"]
    assert purgatory.expired.value == 1
    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert not operation.force_complete()
    assert operation.calls == ["complete", "expire"]


def test_a_key_without_watchers_costs_nothing_and_leaves_nothing(purgatory: Purgatory) -> None:
    assert purgatory.check_and_complete("nobody") == 0
    assert len(purgatory._watchers) == 0


def test_only_the_operations_whose_condition_holds_complete(purgatory: Purgatory) -> None:
    operations = [Wait() for _ in range(10)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
    for operation in operations[::2]:
        operation.ready = True
    assert purgatory.check_and_complete("a") == 5
    assert [operation.is_completed for operation in operations] == [True, False] * 5
    assert purgatory.watched == 5


def test_completing_one_operation_may_complete_one_that_was_tried_before_it(purgatory: Purgatory) -> None:
    first = Wait()

    def unblock() -> None:
        first.ready = True
        purgatory.check_and_complete("a")

    second = Wait(then=unblock)
    purgatory.try_complete_else_watch(first, ["a"])
    purgatory.try_complete_else_watch(second, ["a"])
    second.ready = True
    purgatory.check_and_complete("a")
    assert first.calls == second.calls == ["complete"]
    assert len(purgatory._watchers) == 0


def test_a_purge_while_a_key_is_checked_skips_no_operation(purgatory: Purgatory) -> None:
    first, second = Wait(then=lambda: void(purgatory.purge())), Wait()
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.ready = True
    assert purgatory.check_and_complete("a") == 2


def test_an_operation_watched_while_its_key_is_checked_stays_watched(purgatory: Purgatory) -> None:
    late = Wait()
    first = Wait(then=lambda: void(purgatory.try_complete_else_watch(late, ["a"])))
    purgatory.try_complete_else_watch(first, ["a"])
    first.ready = True
    assert purgatory.check_and_complete("a") == 1
    late.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert late.is_completed


def void(_: object) -> None:
    return None


def test_a_broken_operation_harms_neither_the_caller_nor_its_neighbours(purgatory: Purgatory) -> None:
    class Broken(Wait):
        def try_complete(self) -> bool:
            if self.tries:
                raise RuntimeError("broken")
            return super().try_complete()

    neighbour = Wait()
    purgatory.try_complete_else_watch(Broken(), ["a"])
    purgatory.try_complete_else_watch(neighbour, ["a"])
    neighbour.ready = True
    assert purgatory.check_and_complete("a") == 1


def test_watch_lists_are_purged_when_estimate_exceeds_pending_by_more_than_the_interval(
    timer: Timer,
) -> None:
    purgatory = Purgatory("Fetch", timer, Metrics(), purge_interval=1_000)
    survivor = Wait()
    purgatory.try_complete_else_watch(survivor, ["quiet"])
    for _ in range(1_001):
        operation = Wait()
        purgatory.try_complete_else_watch(operation, ["quiet", "also quiet"])
        operation.force_complete()
    assert purgatory.watched == 2 * 1_001 + 1
    purgatory.try_complete_else_watch(Wait(), ["other"])
    assert (purgatory.watched, len(purgatory._watchers), purgatory.pending) == (2, 2, 2)
    for number in range(1_001):
        assert purgatory.watched == 2 + number, "not before as many again are complete"
        operation = Wait()
        purgatory.try_complete_else_watch(operation, ["quiet"])
        operation.force_complete()
    purgatory.try_complete_else_watch(Wait(), ["other"])
    assert purgatory.watched == 3


def test_completions_without_churn_do_not_purge(timer: Timer) -> None:
    purgatory = Purgatory("Fetch", timer, Metrics(), purge_interval=10)
    for _ in range(10):
        operation = Wait()
        purgatory.try_complete_else_watch(operation, ["quiet"])
        operation.force_complete()
    purgatory.try_complete_else_watch(Wait(), ["other"])
    assert purgatory.watched == 11


def test_purgatories_on_one_timer_count_their_own(timer: Timer) -> None:
    metrics = Metrics()
    fetches = Purgatory("Fetch", timer, metrics, PURGE_INTERVAL)
    produces = Purgatory("Produce", timer, metrics, PURGE_INTERVAL)
    fetches.try_complete_else_watch(Wait(), ["a"])
    produces.try_complete_else_watch(Wait(), ["a"])
    produces.try_complete_else_watch(Wait(), ["a"])
    assert (fetches.pending, produces.pending, timer.pending) == (1, 2, 3)
    assert 'barnabas_purgatory_pending{purgatory="Produce"} 2' in render_prometheus(metrics)


def test_ten_thousand_pending_fetches_need_no_more_than_a_few_wakes(
    purgatory: Purgatory, timer: Timer, clock: ManualClock
) -> None:
    for number in range(10_000):
        purgatory.try_complete_else_watch(Wait(30_000), [("topic", number % 100)])
    wakes = 0
    while (next_ms := timer.next_expiry_ms()) is not None and purgatory.pending:
        clock.advance(ms=next_ms - clock.monotonic_ms())
        timer.advance()
        wakes += 1
    assert wakes <= 5
    assert clock.monotonic_ms() == 30_000
