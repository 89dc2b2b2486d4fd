"""Memory limits of transactional ids per connection and principal, and the release of their memory."""

from __future__ import annotations

from barnabas.coordinator.transaction.state.transaction_memory import ID_BYTES
from barnabas.core.bounds.kept_memory import MemoryLimits
from barnabas.core.errors import NotEnoughReplicas
from barnabas.core.ids import TopicPartition
from tests.unit.coordinator.support import OWNER
from tests.unit.coordinator.transaction_support import A, B, Transactions

LIMITS = MemoryLimits(10 * ID_BYTES, 20 * ID_BYTES, 100 * ID_BYTES)


def limited() -> Transactions:
    transactions = Transactions()
    transactions.account.limits = LIMITS
    return transactions


def test_ids_are_bounded_and_known_ones_go_on() -> None:
    transactions = limited()
    for number in range(9):
        transactions.init(f"t{number}")
    assert transactions.refused_init("one more") == "POLICY_VIOLATION"
    assert transactions.account.kept_for(OWNER.principal) == sum(
        ID_BYTES + 2 * len(name) for name in transactions.known
    )
    producer = transactions.init("t0")
    assert transactions.add(producer, A, B, transactional_id="t0") == "NONE"


def test_an_id_that_could_not_be_written_leaves_nothing() -> None:
    transactions = limited()
    transactions.log.error = NotEnoughReplicas("too few")
    for number in range(50):
        transactions.ask_init(f"t{number}")
    transactions.log.error = None
    assert transactions.account.kept_bytes == 0


def test_partitions_are_counted_while_their_transaction_lasts() -> None:
    transactions = limited()
    producer = transactions.init()
    before = transactions.account.kept_bytes
    many = [TopicPartition("topic", number) for number in range(40)]
    assert transactions.add(producer, *many) == "NONE"
    assert transactions.account.kept_bytes > before + 40 * 100
    too_many = [TopicPartition("topic", number) for number in range(100)]
    assert transactions.add(producer, *too_many) == "POLICY_VIOLATION"
    assert transactions.commit(producer) == "NONE"
    assert transactions.account.kept_bytes == before


def test_ids_that_are_read_back_count_for_the_broker_and_go_with_the_shard() -> None:
    transactions = limited()
    transactions.init("a")
    transactions.init("b")
    again = Transactions(log=transactions.log)
    assert again.account.kept_bytes == transactions.account.kept_bytes
    assert again.account.kept_for(OWNER.principal) == 0
    again.runtime.resigned(0)
    assert again.account.kept_bytes == 0
