import pytest

from barnabas.core.transitions import IllegalTransition
from barnabas.node.lifecycle import BrokerState, Lifecycle


def test_a_life_from_start_to_stop() -> None:
    life = Lifecycle()
    assert life.begin_startup()
    life.move_to(BrokerState.RUNNING)
    life.move_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert life.begin_shutdown()
    life.move_to(BrokerState.NOT_RUNNING)
    assert life.begin_startup()


def test_starting_twice_does_nothing() -> None:
    life = Lifecycle()
    assert life.begin_startup()
    assert not life.begin_startup()
    life.move_to(BrokerState.RUNNING)
    assert not life.begin_startup()


def test_starting_while_shutting_down_is_an_error() -> None:
    life = Lifecycle()
    life.begin_startup()
    life.move_to(BrokerState.RUNNING)
    life.move_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    with pytest.raises(RuntimeError, match="shutting down"):
        life.begin_startup()
    life.begin_shutdown()
    with pytest.raises(RuntimeError, match="shutting down"):
        life.begin_startup()


def test_shutdown_runs_once() -> None:
    life = Lifecycle()
    assert not life.begin_shutdown()
    life.begin_startup()
    assert life.begin_shutdown()
    assert not life.begin_shutdown()


NOT_RUNNING, STARTING, RUNNING, PENDING, SHUTTING_DOWN = BrokerState
CHANGES = {
    (NOT_RUNNING, STARTING),
    (STARTING, RUNNING),
    (RUNNING, PENDING),
    *((previous, SHUTTING_DOWN) for previous in (STARTING, RUNNING, PENDING)),
    (SHUTTING_DOWN, NOT_RUNNING),
}


@pytest.mark.parametrize("previous", BrokerState)
@pytest.mark.parametrize("later", BrokerState)
def test_a_state_cannot_be_skipped(previous: BrokerState, later: BrokerState) -> None:
    life = Lifecycle()
    life.state = previous
    if (previous, later) in CHANGES:
        life.move_to(later)
        return
    with pytest.raises(IllegalTransition):
        life.move_to(later)
