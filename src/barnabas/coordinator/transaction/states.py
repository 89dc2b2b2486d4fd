"""The life of a transaction, as a table.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing …
                     └──▶ PrepareAbort  ──▶ CompleteAbort  ──▶ Ongoing …

The decision falls with the Prepare record: once that is replicated the transaction *is* committed or
aborted, and all that remains is to tell every partition (the markers). The Complete record says that all
have been told. So a coordinator that takes over finishes what it finds prepared, and nothing else.

PrepareEpochFence is a state of Apache Kafka that is never written: there, fencing a producer and aborting
its transaction are two steps in memory; here they are one record. Dead is what a transactional id is after
its tombstone.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.core.transitions import Transitions


class TransactionState(IntEnum):
    """Numbered as in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown_as(self) -> str:
        """The name that DescribeTransactions and ListTransactions use."""
        return self.name.title().replace("_", "")


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is open: the next may begin, and the transactional id may expire."""

PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The fate is decided, but not every partition knows it yet."""

TRANSITIONS: Final = Transitions(
    {
        EMPTY: AT_REST,
        ONGOING: AT_REST | {ONGOING},
        PREPARE_COMMIT: frozenset({ONGOING}),
        # From rest: a producer of transaction version 2 may abort before it has written anything.
        PREPARE_ABORT: AT_REST | {ONGOING, PREPARE_EPOCH_FENCE},
        COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
        COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
        DEAD: AT_REST,
        PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
    }
)

STATES_BY_NAME: Final = {state.shown_as: state for state in TransactionState}
