"""Threads of brokers that end, or fail, before they have a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.node.main import loop_factory
from barnabas.testing.faults.disk import Disk
from barnabas.testing.running import store_thread
from barnabas.testing.running.broker_life import BrokerLife, Surroundings
from barnabas.testing.running.kit import Kit
from barnabas.testing.running.store_thread import StoreThread
from barnabas.testing.running.virtual_time import VirtualClock
from barnabas.testing.running.wires import Wires

MakeLoop = Callable[[Wires], asyncio.AbstractEventLoop]


def life_in(directory: Path, make_loop: MakeLoop) -> BrokerLife:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory)}
    return BrokerLife("broker", settings, Kit(), Surroundings(Wires, make_loop))


def without_descriptors(*_: object) -> asyncio.AbstractEventLoop:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_ends_before_its_loop_runs(tmp_path: Path, end: str) -> None:
    """As when another broker of its cluster cannot start."""
    is_told = threading.Event()

    def make_late(_: Wires) -> asyncio.AbstractEventLoop:
        assert is_told.wait(30)
        return loop_factory()()

    life = life_in(tmp_path, make_late)
    life.launch()
    thread = life.thread
    if end == "kill":
        life.kill(is_told.set)
    else:
        thread.kit.heal = is_told.set  # type: ignore[method-assign]  # a step of `stop`
        life.stop()
    thread.join(30)
    assert not thread.is_alive()
    life.end()


def test_a_broker_that_starts_again_is_looked_at_as_the_last_one(tmp_path: Path) -> None:
    """By another thread, such as that of a call over HTTP."""
    may_start = threading.Event()
    may_start.set()

    def make_loop(_: Wires) -> asyncio.AbstractEventLoop:
        assert may_start.wait(30)
        return loop_factory()()

    life = life_in(tmp_path, make_loop)
    try:
        life.start()
        last = life.broker
        life.stop()
        may_start.clear()
        life.launch()
        assert life.broker is last
        assert life.loop is None
        may_start.set()
        life.wait_started()
        assert life.broker is not last
        assert life.broker.bound_listeners == last.bound_listeners
        assert life.loop is not None
    finally:
        may_start.set()
        life.end()


def test_a_broker_without_a_loop_raises_its_error(tmp_path: Path) -> None:
    life = life_in(tmp_path, without_descriptors)
    with pytest.raises(OSError, match="Too many open files"):
        life.start()
    assert not life.is_running


def test_a_store_without_a_loop_raises_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_thread, "VirtualLoop", without_descriptors)
    store = StoreThread(tmp_path, VirtualClock(), Disk())
    store.start()
    with pytest.raises(OSError, match="Too many open files"):
        store.wait_started()
