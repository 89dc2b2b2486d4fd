"""States of a broker's life, and their valid order.

Start-up raises while the broker shuts down, and does nothing if the broker is up or starting. Shutdown runs
once. The state is a metric, with the numbers of Kafka's own metric. Kafka's 2, recovery after a crash, is
part of STARTING here: the broker answers no request before recovery is done.
"""

from __future__ import annotations

from enum import IntEnum

from barnabas.core.transitions import Transitions


class BrokerState(IntEnum):
    NOT_RUNNING = 0
    STARTING = 1
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


TRANSITIONS = Transitions(
    {
        BrokerState.NOT_RUNNING: frozenset({BrokerState.SHUTTING_DOWN}),
        BrokerState.STARTING: frozenset({BrokerState.NOT_RUNNING}),
        BrokerState.RUNNING: frozenset({BrokerState.STARTING}),
        BrokerState.PENDING_CONTROLLED_SHUTDOWN: frozenset({BrokerState.RUNNING}),
        BrokerState.SHUTTING_DOWN: frozenset(
            {BrokerState.STARTING, BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN}
        ),
    }
)


class Lifecycle:
    """State of a broker, and the checks of its changes."""

    def __init__(self) -> None:
        self.state = BrokerState.NOT_RUNNING

    def move_to(self, target: BrokerState) -> None:
        TRANSITIONS.check(self.state, target)
        self.state = target

    def begin_startup(self) -> bool:
        """False when the broker is up or starting; raises while it shuts down."""
        if self.state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            raise RuntimeError("the broker is shutting down and cannot start now")
        if self.state is not BrokerState.NOT_RUNNING:
            return False
        self.move_to(BrokerState.STARTING)
        return True

    def begin_shutdown(self) -> bool:
        """False when the broker is not running, or its shutdown has begun."""
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return False
        self.move_to(BrokerState.SHUTTING_DOWN)
        return True
