"""Transactions as transcripts: responses of the coordinator, and the markers it writes."""

from __future__ import annotations

import pytest

from barnabas.coordinator.runtime.decision import Decision
from barnabas.coordinator.transaction.shard import PREPARE_ROOM_BYTES, TransactionShard
from barnabas.coordinator.transaction.state.metadata import TransactionMetadata, fenced, prepared
from barnabas.coordinator.transaction.state.records import TransactionRecord
from barnabas.coordinator.transaction.state.states import (
    AT_REST,
    ONGOING,
    PREPARED,
    STATES_BY_NAME,
    TRANSITIONS,
    TransactionState,
)
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    KafkaError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    TransactionCoordinatorFenced,
    UnknownServerError,
    name_of,
)
from barnabas.core.ids import TopicPartition
from barnabas.handlers.describe_transactions import DESCRIBE_TRANSACTIONS
from barnabas.handlers.list_transactions import LIST_TRANSACTIONS
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from tests.unit.coordinator.transaction_support import V1, V2, A, B, Transactions


def test_the_states_are_named_as_kafka_names_them() -> None:
    assert set(STATES_BY_NAME) == {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
    for decided in PREPARED:
        following = {state for state in TransactionState if TRANSITIONS.allows(decided, state)}
        assert len(following) == 1, "what is prepared can only be completed"
        assert following < AT_REST


def test_a_transaction_commits() -> None:
    t = Transactions()
    producer = t.init()
    assert producer == (1000, 0)
    assert t.add(producer, A) == "NONE"
    assert t.add(producer, A, B) == "NONE"
    assert t.state() == "Ongoing"
    assert t.commit(producer) == "NONE"
    assert t.markers.outcomes == [(A, "commit", 0), (B, "commit", 0)]
    assert t.state() == "CompleteCommit"
    assert not t.known["t"].partitions


def test_a_transaction_aborts_and_the_next_begins_under_the_same_epoch() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    assert t.abort(producer) == "NONE"
    assert t.state() == "CompleteAbort"
    assert t.add(producer, B) == "NONE"
    assert t.commit(producer) == "NONE"
    assert t.markers.outcomes == [(A, "abort", 0), (B, "commit", 0)]


def test_ending_twice_the_same_way_is_a_repetition_and_otherwise_an_error() -> None:
    t = Transactions()
    producer = t.init()
    assert t.commit(producer) == "INVALID_TXN_STATE"
    assert t.abort(producer) == "INVALID_TXN_STATE"
    t.add(producer, A)
    t.commit(producer)
    assert t.commit(producer) == "NONE"
    assert t.abort(producer) == "INVALID_TXN_STATE"
    assert t.markers.outcomes == [(A, "commit", 0)]


def test_a_second_producer_fences_the_first_and_aborts_its_transaction() -> None:
    t = Transactions()
    first = t.init()
    t.add(first, A)
    assert t.refused_init() == "CONCURRENT_TRANSACTIONS"
    assert t.markers.outcomes == [(A, "abort", 1)]
    second = t.init()
    assert second == (1000, 2)
    for answer in (t.add(first, A), t.commit(first), t.abort(first), t.verify(first, A)):
        assert answer == "PRODUCER_FENCED"
    assert t.add(second, A) == "NONE"


def test_a_producer_that_lost_its_transaction_keeps_its_place_until_another_comes() -> None:
    t = Transactions()
    first = t.init()
    t.add(first, A)
    assert t.refused_init() == "CONCURRENT_TRANSACTIONS"
    assert t.init(expected=first) == (1000, 1)
    assert t.init() == (1000, 2)
    assert t.refused_init(expected=first) == "PRODUCER_FENCED"


def test_another_producer_id_owns_nothing() -> None:
    t = Transactions()
    assert t.add((7, 0), A) == "INVALID_PRODUCER_ID_MAPPING"
    assert t.commit((7, 0)) == "INVALID_PRODUCER_ID_MAPPING"
    t.init()
    for answer in (t.add((7, 0), A), t.commit((7, 0)), t.verify((7, 0), A)):
        assert answer == "INVALID_PRODUCER_ID_MAPPING"


def test_while_a_transaction_is_being_completed_everything_else_has_to_wait() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.markers.is_slow = True
    assert t.commit(producer) == "NONE"
    assert t.state() == "PrepareCommit"
    assert t.commit(producer) == "CONCURRENT_TRANSACTIONS"
    assert t.abort(producer) == "INVALID_TXN_STATE"
    assert t.verify(producer, A) == "CONCURRENT_TRANSACTIONS"
    assert t.refused_init() == "CONCURRENT_TRANSACTIONS"
    t.markers.release()
    assert t.state() == "CompleteCommit"
    assert t.add(producer, B) == "NONE"


def test_the_next_transaction_waits_a_moment_for_the_last_one() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.markers.is_slow = True
    t.commit(producer)
    first, second = t.ask_add(producer, A), t.ask_add(producer, B)
    assert not first.is_given
    t.advance(99)
    assert not second.is_given
    t.markers.release()
    assert (first.value, second.value) == ("NONE", "NONE")
    assert t.known["t"].partitions == {A, B}


def test_the_next_transaction_is_sent_back_if_the_last_one_takes_long() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.markers.is_slow = True
    t.commit(producer)
    answer = t.ask_add(producer, B)
    t.advance(101)
    assert answer.value == "CONCURRENT_TRANSACTIONS"
    lost = t.ask_add(producer, B)
    t.runtime.resigned(0)
    assert lost.value == "NOT_COORDINATOR"


def test_who_waits_is_answered_once_whatever_becomes_of_replication() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.log.is_replicated = False
    t.ask_end(producer, commit=True)
    answer = t.ask_add(producer, B)
    t.log.time_out()
    assert not answer.is_given
    t.log.is_replicated = True
    t.log.replicate()
    t.advance(50)
    assert answer.value == "NONE"


def test_verification_finds_what_is_not_in_the_transaction() -> None:
    t = Transactions()
    producer = t.init()
    assert t.verify(producer, A) == {A}
    t.add(producer, A)
    assert t.verify(producer, A, B) == {B}
    t.commit(producer)
    assert t.verify(producer, A) == {A}


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_outside_of_the_limits_is_refused(timeout_ms: int) -> None:
    t = Transactions()
    assert t.refused_init(timeout_ms=timeout_ms) == "INVALID_TRANSACTION_TIMEOUT"
    assert t.refused_init("", timeout_ms=1) == "INVALID_REQUEST"
    assert not t.log.batches


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    t = Transactions()
    producer = t.init(timeout_ms=30_000)
    t.advance(8_000)
    t.add(producer, A)
    t.advance(30_000)
    assert t.state() == "Ongoing"
    t.advance(10_000)
    assert t.state() == "CompleteAbort"
    assert t.markers.outcomes == [(A, "abort", 1)]
    assert t.commit(producer) == "PRODUCER_FENCED"
    assert t.init() == (1000, 2)


def test_an_old_transactional_id_is_forgotten_but_never_with_a_transaction_open() -> None:
    t = Transactions(id_expiration_ms=100_000, remove_expired_interval_ms=10_000, max_timeout_ms=10**9)
    t.init("idle")
    t.add(t.init("open", timeout_ms=10**9), A, transactional_id="open")
    t.advance(111_000)
    assert list(t.known) == ["open"]
    assert t.log.batches
    assert Transactions(t.log).known == t.known


def test_more_than_fits_into_a_turn_expires_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordinator.transaction.shard.TIMEOUTS_PER_TURN", 7)
    monkeypatch.setattr("barnabas.coordinator.transaction.shard.EXPIRED_PER_TURN", 7)
    t = Transactions(id_expiration_ms=100_000, remove_expired_interval_ms=10_000, max_timeout_ms=10**9)
    for number in range(50):
        t.add(t.init(f"id-{number}", timeout_ms=1_000), A, transactional_id=f"id-{number}")
    t.advance(12_000)
    assert {metadata.state.shown_as for metadata in t.known.values()} == {"CompleteAbort"}
    t.advance(120_000)
    assert not t.known
    assert max(len(batch) for batch in t.log.batches) < 1_000


# Producers that come back


def test_a_producer_that_bumps_its_own_epoch_may_repeat_that() -> None:
    t = Transactions()
    assert t.init() == (1000, 0)
    assert t.init(expected=(1000, 0)) == (1000, 1)
    assert t.init(expected=(1000, 0)) == (1000, 1)
    assert t.init(expected=(1000, 1)) == (1000, 2)
    assert t.refused_init(expected=(1000, 0)) == "PRODUCER_FENCED"
    assert t.refused_init(expected=(999, 2)) == "PRODUCER_FENCED"
    assert t.init() == (1000, 3)
    assert t.refused_init(expected=(1000, 2)) == "PRODUCER_FENCED"


def test_a_producer_whose_id_was_forgotten_gets_a_new_one() -> None:
    assert Transactions().init(expected=(7, 3)) == (1000, 0)


def test_used_up_epochs_give_a_new_producer_id() -> None:
    t = Transactions.at_epoch(32_765)
    assert t.init() == (1000, 32_766)
    t.add((1000, 32_766), A)
    assert t.refused_init() == "CONCURRENT_TRANSACTIONS"
    assert t.markers.outcomes == [(A, "abort", 32_767)]
    assert t.init() == (1001, 0)
    assert t.add((1000, 32_766), A) == "INVALID_PRODUCER_ID_MAPPING"


def test_a_producer_that_uses_up_its_own_epochs_may_repeat_that() -> None:
    t = Transactions.at_epoch(32_766)
    assert t.init(expected=(1000, 32_766)) == (1001, 0)
    assert t.init(expected=(1000, 32_766)) == (1001, 0)
    assert t.init(expected=(1001, 0)) == (1001, 1)
    assert t.refused_init(expected=(1000, 32_766)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_that_was_timed_out_at_the_end_of_its_epochs_gets_a_new_id(version: int) -> None:
    """The highest epoch fences the producer. No producer gets it, not even as the epoch after its own."""
    t = Transactions.at_epoch(32_766, timeout_ms=1_000)
    t.add((1000, 32_766), A, version=version)
    t.advance(20_000)
    assert t.markers.outcomes == [(A, "abort", 32_767)]
    producer = t.init(expected=(1000, 32_766), timeout_ms=1_000)
    assert producer == (1001, 0)
    assert t.init(expected=(1000, 32_766), timeout_ms=1_000) == producer, "the answer may have been lost"
    assert t.add(producer, A, version=version) == "NONE"
    t.advance(20_000)
    assert t.state() == "CompleteAbort"


def test_a_producer_whose_new_id_was_lost_with_the_answer_to_its_commit_may_ask_for_it() -> None:
    t = Transactions.at_epoch(32_766)
    t.add((1000, 32_766), A, version=V2)
    assert t.commit((1000, 32_766), version=V2) == "NONE"
    assert t.init(expected=(1000, 32_766)) == (1001, 0)


def test_a_zombie_of_the_previous_id_is_fenced_at_the_end_of_the_next_ones_epochs() -> None:
    t = Transactions.at_epoch(32_766)
    assert t.init() == (1001, 0)
    for _ in range(3):
        t.init()
    assert t.refused_init(expected=(1000, 32_766)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_that_has_the_highest_epoch_all_the_same_is_fenced(version: int) -> None:
    t = Transactions.at_epoch(32_767, timeout_ms=1_000)
    assert t.add((1000, 32_767), A, version=version) == "PRODUCER_FENCED"
    assert t.init() == (1001, 0)


def ongoing(transactional_id: str, epoch: int, *, version: int = V1) -> TransactionMetadata:
    return TransactionMetadata(
        transactional_id,
        1000,
        epoch,
        1_000,
        ONGOING,
        frozenset({A}),
        start_timestamp_ms=0,
        last_update_timestamp_ms=0,
        client_transaction_version=version,
    )


@pytest.mark.parametrize("version", [V1, V2])
def test_an_open_transaction_of_the_highest_epoch_is_aborted_under_it(version: int) -> None:
    t = Transactions.with_records(ongoing("t", 32_767, version=version), ongoing("other", 0))
    t.advance(20_000)
    assert t.state() == "CompleteAbort"
    assert t.state("other") == "CompleteAbort"
    (marker,) = (marker for _, marker in t.markers.written if marker.producer_epoch == 32_767)
    assert marker.transaction_version < V2, "the partition would take it for a late one"
    assert t.init() == (1000, 0), "a new producer id, the first that this test gives"


def test_no_request_is_served_while_it_is_unknown_which_partition_an_id_belongs_to() -> None:
    """A shard of another partition knows nothing of the id, and would give it to a second producer."""
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.coordinator._partition_count = lambda: None
    assert t.refused_init() == "NOT_COORDINATOR"
    assert t.add(producer, A) == "NOT_COORDINATOR"
    assert t.commit(producer) == "NOT_COORDINATOR"
    assert t.verify(producer, A) == "NOT_COORDINATOR"
    assert t.state() == "Ongoing"


def test_a_shard_that_was_thrown_away_does_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay fails in the middle of a sweep: the partition has another shard when the sweep goes on."""
    monkeypatch.setattr("barnabas.coordinator.transaction.shard.TIMEOUTS_PER_TURN", 1)
    t = Transactions()
    for name in ("a", "b", "c"):
        t.add(t.init(name, timeout_ms=1_000), A, transactional_id=name)
    ((_, former),) = t.runtime.active_shards()

    def broken(*_: object) -> None:
        raise RuntimeError("the replay breaks")

    monkeypatch.setattr(former, "replay", broken)
    ran: list[object] = []
    sweep = former.abort_timed_out
    t.advance(10_001)
    t.scheduler.run_due()
    ((_, shard),) = t.runtime.active_shards()
    assert shard is not former
    monkeypatch.setattr(former, "_time_out", lambda _: ran.append(former))
    former._timers.run(sweep)
    former._completions.start_later("b", 0)
    t.advance(60_000)
    assert ran == []
    assert {each.state.shown_as for each in t.known.values()} == {"CompleteAbort"}
    assert Transactions(t.log).known.keys() == t.known.keys()


def test_a_completion_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    complete = TransactionShard._complete

    def failing(self: TransactionShard, transactional_id: str) -> Decision[None]:
        calls.append(transactional_id)
        if len(calls) == 1:
            raise RuntimeError("nobody expected this")
        return complete(self, transactional_id)

    monkeypatch.setattr(TransactionShard, "_complete", failing)
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    assert t.commit(producer) == "NONE"
    assert t.state() == "PrepareCommit"
    t.advance(10_000)
    assert t.state() == "CompleteCommit"


# A transaction that grows


def many(count: int) -> list[TopicPartition]:
    return [TopicPartition("a-topic", number) for number in range(count)]


def test_a_transaction_grows_no_further_than_it_can_be_ended() -> None:
    for bytes_max in range(2_000, 2_008):
        t, producer = Transactions.at_epoch(32_766), (1000, 32_766)  # its end names the next producer id
        t.log.bytes_max = bytes_max
        count = 0
        while (answer := t.add(producer, *many(count + 1), version=V2)) == "NONE":
            count += 1
        assert answer == "UNKNOWN_SERVER_ERROR", "it is not the producer's records that are too large"
        assert count > 100
        assert t.commit(producer, version=V2) == "NONE"
        assert t.state() == "CompleteCommit"


@pytest.mark.parametrize("version", [V1, V2])
def test_the_prepare_record_needs_no_more_room_than_was_left_for_it(version: int) -> None:
    largest = TransactionMetadata(
        "t", 1 << 60, 32_766, 1, ONGOING, frozenset(many(10)), 1, 1, client_transaction_version=version
    )
    ended = prepared(
        largest, is_commit=True, now_ms=1 << 60, client_transaction_version=V2, next_producer_id=1 << 62
    )
    sizes = [
        len(TransactionRecord("t", each, is_flexible=True).encode()[1] or b"")
        for each in (largest, ended, fenced(largest, 1 << 60))
    ]
    assert max(sizes) - sizes[0] <= PREPARE_ROOM_BYTES


def test_one_that_has_outgrown_the_limit_keeps_no_other_from_its_timeout() -> None:
    t = Transactions()
    t.add(t.init("large", timeout_ms=1_000), *many(300), transactional_id="large")
    for name in ("a", "b"):
        t.add(t.init(name, timeout_ms=1_000), A, transactional_id=name)
    t.log.bytes_max = 500
    t.advance(20_000)
    assert [t.state(name) for name in ("large", "a", "b")] == ["Ongoing", "CompleteAbort", "CompleteAbort"]
    t.log.bytes_max = 1 << 20
    t.advance(20_000)
    assert t.state("large") == "CompleteAbort"


# Markers that cannot be written at once


@pytest.mark.parametrize("error", [NotLeaderOrFollower, CoordinatorLoadInProgress, UnknownServerError])
def test_a_marker_is_written_again_until_it_is_there(error: type[KafkaError]) -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A, B)
    t.markers.errors[B] = error("not now")
    assert t.commit(producer) == "NONE"
    t.advance(60_000)
    assert t.state() == "PrepareCommit", "half of the partitions is not all"
    assert t.markers.outcomes == [(A, "commit", 0)]
    t.markers.errors.clear()
    t.advance(2_001)
    assert t.state() == "CompleteCommit"
    assert t.markers.outcomes == [(A, "commit", 0), (B, "commit", 0)]


def test_a_partition_that_has_moved_past_the_transaction_does_not_hold_it_up() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A, B)
    t.markers.errors[B] = InvalidProducerEpoch("a later epoch was here")
    assert t.commit(producer) == "NONE"
    assert t.state() == "CompleteCommit"


def test_a_coordinator_of_the_past_stops_telling() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.markers.errors[A] = TransactionCoordinatorFenced("a later coordinator was here")
    t.commit(producer)
    t.markers.errors.clear()
    t.advance(60_000)
    assert not t.markers.written


# Replication and failover


def test_no_marker_is_written_before_the_decision_is_replicated() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.log.is_replicated = False
    answer = t.ask_end(producer, commit=True)
    assert not answer.is_given
    assert not t.markers.written
    t.log.replicate()
    assert answer.error_code == 0
    assert t.markers.outcomes == [(A, "commit", 0)]
    t.log.replicate()
    assert t.state() == "CompleteCommit"


def test_a_decision_that_takes_long_to_replicate_is_completed_all_the_same() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.log.is_replicated = False
    answer = t.ask_end(producer, commit=True)
    t.log.time_out()
    assert name_of(answer.error_code) == "COORDINATOR_NOT_AVAILABLE"
    t.advance(1_000)
    assert not t.markers.written
    t.log.is_replicated = True
    t.log.replicate()
    assert t.markers.outcomes == [(A, "commit", 0)]
    assert t.state() == "CompleteCommit"


def test_an_end_that_cannot_be_written_changes_nothing() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.log.error = NotEnoughReplicas("too few")
    assert t.commit(producer) == "COORDINATOR_NOT_AVAILABLE"
    assert t.add(producer, B) == "COORDINATOR_NOT_AVAILABLE"
    t.log.error = None
    t.advance(5_000)
    assert t.state() == "Ongoing"
    assert t.known["t"].partitions == {A}
    assert not t.markers.written
    assert t.abort(producer) == "NONE"


def test_a_completion_that_cannot_be_written_is_tried_again() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.markers.is_slow = True
    t.commit(producer)
    t.log.error = NotEnoughReplicas("too few")
    t.markers.release()
    assert t.state() == "PrepareCommit"
    t.log.error, t.markers.is_slow = None, False
    t.advance(2_001)
    assert t.state() == "CompleteCommit"


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_prepared_is_completed_after_a_restart(commit: bool) -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A, B)
    t.markers.is_slow = True
    t.ask_end(producer, commit=commit)
    again = Transactions(t.log)
    assert again.state().startswith("Prepare")
    again.advance(1)
    assert again.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert again.markers.outcomes == t.markers.outcomes
    assert again.add(producer, A) == "NONE"


def test_what_was_open_goes_on_after_a_restart() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    again = Transactions(t.log)
    again.advance(5_000)
    assert again.add(producer, B) == "NONE"
    assert again.commit(producer) == "NONE"
    assert again.markers.outcomes == [(A, "commit", 0), (B, "commit", 0)]


def test_markers_carry_the_epoch_of_the_election() -> None:
    t = Transactions()
    t.elect(5)
    producer = t.init()
    t.add(producer, A)
    t.commit(producer)
    assert [marker.coordinator_epoch for _, marker in t.markers.written] == [5]


def test_a_coordinator_that_lost_its_partition_completes_nothing() -> None:
    t = Transactions()
    producer = t.init()
    t.add(producer, A)
    t.markers.is_slow = True
    t.commit(producer)
    written = t.log.log_end_offset
    t.runtime.resigned(0)
    t.markers.release()
    t.advance(60_000)
    assert t.log.log_end_offset == written
    assert t.commit(producer) == "NOT_COORDINATOR"


def test_while_loading_the_answer_is_to_try_again() -> None:
    t = Transactions()
    producer = t.init()
    t.log.leader_epoch = 1
    t.runtime.elected(0, 1)
    assert t.refused_init() == "COORDINATOR_LOAD_IN_PROGRESS"
    assert t.add(producer, A) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert t.commit(producer) == "COORDINATOR_LOAD_IN_PROGRESS"
    answer = t.serve(LIST_TRANSACTIONS, ListTransactionsRequest(), 2)
    assert name_of(answer.error_code) == "COORDINATOR_LOAD_IN_PROGRESS"
    t.scheduler.run_due()
    assert t.add(producer, A) == "NONE"


# Administration


def test_transactions_are_listed_by_state_producer_age_and_name() -> None:
    t = Transactions()
    t.init("empty")
    old = t.init("old-1")
    t.add(old, A, transactional_id="old-1")
    t.advance(5_000)
    new = t.init("new-1")
    t.add(new, A, transactional_id="new-1")
    assert t.listed() == ["empty", "new-1", "old-1"]
    assert t.listed(state_filters=["Ongoing"]) == ["new-1", "old-1"]
    assert t.listed(state_filters=["Ongoing", "Empty", "Nonsense"]) == ["empty", "new-1", "old-1"]
    assert t.listed(producer_id_filters=[old.producer_id]) == ["old-1"]
    assert t.listed(duration_filter=4_000, state_filters=["Ongoing"]) == ["old-1"]
    assert t.listed(transactional_id_pattern=".*-1") == ["new-1", "old-1"]
    answer = t.serve(LIST_TRANSACTIONS, ListTransactionsRequest(state_filters=["Nonsense"]), 2)
    assert answer.value.unknown_state_filters == ["Nonsense"]
    assert answer.value.transaction_states == []


def test_a_transaction_is_described() -> None:
    t = Transactions()
    producer = t.init(timeout_ms=1_234)
    t.add(producer, B, A, TopicPartition("b", 1))
    request = DescribeTransactionsRequest(transactional_ids=["t", "nobody", ""])
    found, missing, invalid = t.serve(DESCRIBE_TRANSACTIONS, request, 0).value.transaction_states
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", 1_234)
    assert found.transaction_start_time_ms == t.clock.now_ms()
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("a", [0]), ("b", [1, 3])]
    assert name_of(missing.error_code) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert name_of(invalid.error_code) == "INVALID_REQUEST"


# Transaction version 2: an epoch for each transaction


def test_each_end_gives_the_producer_its_next_epoch() -> None:
    t = Transactions()
    t.init()
    assert t.add((1000, 0), A, version=V2) == "NONE"
    response = t.ask_end((1000, 0), commit=True, version=V2).value
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1000, 1)
    assert t.markers.outcomes == [(A, "commit", 1)], "the marker fences what is late"
    assert t.add((1000, 0), A, version=V2) == "PRODUCER_FENCED"
    assert t.add((1000, 1), B, version=V2) == "NONE"
    assert t.abort((1000, 1), version=V2) == "NONE"
    assert t.markers.outcomes[1:] == [(B, "abort", 2)]


def test_a_late_end_cannot_touch_the_next_transaction() -> None:
    t = Transactions()
    t.init()
    t.add((1000, 0), A, version=V2)
    t.commit((1000, 0), version=V2)
    t.add((1000, 1), B, version=V2)
    assert t.commit((1000, 0), version=V2) == "PRODUCER_FENCED"
    assert t.abort((1000, 0), version=V2) == "PRODUCER_FENCED"
    assert t.state() == "Ongoing"


def test_a_repeated_end_is_told_from_the_next_one_by_its_epoch() -> None:
    t = Transactions()
    t.init()
    t.add((1000, 0), A, version=V2)
    t.markers.is_slow = True
    assert t.commit((1000, 0), version=V2) == "NONE"
    assert t.commit((1000, 0), version=V2) == "CONCURRENT_TRANSACTIONS"
    assert t.commit((1000, 1), version=V2) == "CONCURRENT_TRANSACTIONS"
    assert t.abort((1000, 0), version=V2) == "INVALID_TXN_STATE"
    t.markers.release()
    response = t.ask_end((1000, 0), commit=True, version=V2).value
    assert (response.error_code, response.producer_epoch) == (0, 1)
    assert t.abort((1000, 0), version=V2) == "INVALID_TXN_STATE"
    assert t.commit((1000, 1), version=V2) == "INVALID_TXN_STATE"
    assert t.commit((1000, 5), version=V2) == "PRODUCER_FENCED"


def test_an_empty_transaction_may_be_aborted_and_consumes_its_epoch() -> None:
    t = Transactions()
    t.init()
    response = t.ask_end((1000, 0), commit=False, version=V2).value
    assert (response.error_code, response.producer_epoch) == (0, 1)
    assert t.commit((1000, 1), version=V2) == "INVALID_TXN_STATE"
    response = t.ask_end((1000, 1), commit=False, version=V2).value
    assert (response.error_code, response.producer_epoch) == (0, 2)
    assert not t.markers.written


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    t = Transactions.at_epoch(32_766)
    t.add((1000, 32_766), A, version=V2)
    t.markers.is_slow = True
    response = t.ask_end((1000, 32_766), commit=True, version=V2).value
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1001, 0)
    assert t.verify((1001, 0), B) == "CONCURRENT_TRANSACTIONS"
    assert t.commit((1000, 32_766), version=V2) == "CONCURRENT_TRANSACTIONS"
    t.markers.release()
    assert t.markers.outcomes == [(A, "commit", 32_767)]
    response = t.ask_end((1000, 32_766), commit=True, version=V2).value
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 1001, 0)
    assert t.add((1001, 0), B, version=V2) == "NONE"


def test_a_new_producer_id_waits_for_the_last_transaction_of_the_old_one() -> None:
    t = Transactions.at_epoch(32_766)
    t.add((1000, 32_766), A, version=V2)
    t.markers.is_slow = True
    t.commit((1000, 32_766), version=V2)
    following = t.ask_add((1001, 0), B, version=V2)
    assert not following.is_given
    t.markers.release()
    assert following.value == "NONE"
    assert t.known["t"].producer_id == 1001


def test_a_producer_that_was_timed_out_learns_of_the_abort() -> None:
    t = Transactions()
    t.init(timeout_ms=1_000)
    t.add((1000, 0), A, version=V2)
    t.advance(20_000)
    assert t.state() == "CompleteAbort"
    assert t.commit((1000, 0), version=V2) == "INVALID_TXN_STATE"
    response = t.ask_end((1000, 0), commit=False, version=V2).value
    assert (response.error_code, response.producer_epoch) == (0, 1)


def test_no_producer_is_given_the_highest_epoch() -> None:
    t = Transactions.at_epoch(32_766, timeout_ms=1_000)
    t.add((1000, 32_766), A, version=V2)
    t.advance(20_000)
    assert t.markers.outcomes == [(A, "abort", 32_767)]
    assert t.abort((1000, 32_766), version=V2) == "PRODUCER_FENCED"
    assert t.init() == (1001, 0)
