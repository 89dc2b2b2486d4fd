import pytest

from barnabas.core.transitions import IllegalTransition
from barnabas.node.lifecycle import BrokerState, Lifecycle


def test_a_life_from_start_to_stop() -> None:
    life = Lifecycle()
    assert life.begin_startup()
    life.move_to(BrokerState.RUNNING)
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
    life.begin_shutdown()
    with pytest.raises(RuntimeError, match="shutting down"):
        life.begin_startup()


def test_shutdown_runs_once() -> None:
    life = Lifecycle()
    assert not life.begin_shutdown()
    life.begin_startup()
    assert life.begin_shutdown()
    assert not life.begin_shutdown()


def test_a_state_cannot_be_skipped() -> None:
    with pytest.raises(IllegalTransition):
        Lifecycle().move_to(BrokerState.RUNNING)
