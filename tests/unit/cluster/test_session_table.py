"""Living sessions of the shared store, on a clock that is moved by hand."""

from __future__ import annotations

from barnabas.cluster.embedded.durable_sessions import DurableSession
from barnabas.cluster.shared.session_table import TICK_MS, SessionTable, granted_timeout_ms

TIMEOUT_MS = 6_000


class Store:
    """Ticks as a running store does."""

    def __init__(self) -> None:
        self.now_ms = 1_000.0
        self.table = SessionTable(self.now_ms, TICK_MS)

    def run(self, duration_ms: float) -> set[int]:
        """Sessions that were found silent meanwhile."""
        expired: set[int] = set()
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + TICK_MS, end_ms)
            expired.update(self.table.tick(self.now_ms))
        return expired


def test_a_silent_session_expires_after_its_timeout_and_not_before() -> None:
    store = Store()
    store.table.add(7, DurableSession(TIMEOUT_MS, ""), store.now_ms)
    assert store.run(TIMEOUT_MS) == set()
    assert store.run(2 * TICK_MS) == {7}


def test_a_heartbeat_between_two_ticks_counts_from_its_own_time() -> None:
    store = Store()
    store.table.add(7, DurableSession(TIMEOUT_MS, ""), store.now_ms)
    store.run(TICK_MS)
    store.table.hear(7, store.now_ms + TICK_MS - 1)
    assert store.run(TICK_MS - 1 + TIMEOUT_MS) == set()
    assert store.run(2 * TICK_MS) == {7}


def test_time_in_which_the_store_stood_still_does_not_count() -> None:
    store = Store()
    store.table.add(7, DurableSession(TIMEOUT_MS, ""), store.now_ms)
    store.now_ms += 10 * TIMEOUT_MS  # the store was stopped; heartbeats wait in the sockets
    assert store.table.tick(store.now_ms) == []
    assert store.run(TIMEOUT_MS / 2) == set()
    assert store.run(TIMEOUT_MS) == {7}


def test_a_store_that_is_always_late_still_finds_silent_sessions() -> None:
    store = Store()
    store.table.add(7, DurableSession(TIMEOUT_MS, ""), store.now_ms)
    for _ in range(TIMEOUT_MS // TICK_MS):
        store.now_ms += 5 * TICK_MS
        expired = store.table.tick(store.now_ms)
    assert expired == [7]


def test_only_sessions_of_the_named_process_are_of_it() -> None:
    store = Store()
    store.table.add(1, DurableSession(TIMEOUT_MS, "one"), store.now_ms)
    store.table.add(2, DurableSession(TIMEOUT_MS, "two"), store.now_ms)
    store.table.add(3, DurableSession(TIMEOUT_MS, ""), store.now_ms)
    assert store.table.of_process("one") == [1]
    assert store.table.of_process("") == []
    assert store.table.of_supervised() == [1, 2]
    store.table.remove(1)
    assert store.table.of_process("one") == []
    assert 1 not in store.table
    assert len(store.table) == 2


def test_timeouts_have_bounds() -> None:
    assert granted_timeout_ms(1) == 2 * TICK_MS
    assert granted_timeout_ms(18_000) == 18_000
    assert granted_timeout_ms(10**9) == 120_000
