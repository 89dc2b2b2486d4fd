"""Transaction states and their valid transitions.

    Empty ──▶ Ongoing ──▶ PrepareCommit ──▶ CompleteCommit ──▶ Ongoing …
                     └──▶ PrepareAbort  ──▶ CompleteAbort  ──▶ Ongoing …

The Prepare record decides: once it is replicated the transaction *is* committed or aborted, and only the
markers remain. The Complete record confirms that every partition has its marker. So a new coordinator
completes the prepared transactions it finds, and nothing else.

PrepareEpochFence is a state of Apache Kafka that is never written. There, fencing a producer and aborting its
transaction are two steps in memory; here they are one record. Dead is the state of a transactional id after
its tombstone.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.core.transitions import Transitions


class TransactionState(IntEnum):
    """Numbers of the states in the log."""

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
        """State name of DescribeTransactions and ListTransactions."""
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
"""The outcome is decided, but not every partition has its marker yet."""

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
