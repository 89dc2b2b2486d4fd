"""Connections of a broker that was killed."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from barnabas.testing.running.wires import HeldPorts, Wires


def test_a_connection_that_is_accepted_after_the_death_ends_at_once() -> None:
    """A client whose connection ends may connect again before the listening socket ends too."""
    wires = Wires()
    with closing(wires.sockets.open(socket.AF_INET, socket.SOCK_STREAM)) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname(), timeout=10) as client:
            wires.is_dead = True
            accepted, _ = listening.accept()
            with closing(accepted):
                assert client.recv(1) == b""


def test_the_death_ends_all_connections() -> None:
    wires = Wires()
    with closing(wires.sockets.open(socket.AF_INET, socket.SOCK_STREAM)) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname(), timeout=10) as client:
            accepted, _ = listening.accept()
            with closing(accepted):
                wires.die()
                assert client.recv(1) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems let nothing listen on a port that is held")
def test_a_port_is_held_while_no_broker_runs() -> None:
    """The system gives it neither to another process nor to a client as its own."""
    ports = HeldPorts()
    found: list[tuple[str, int]] = []
    for _ in range(2):
        wires = Wires()
        wires.ports = ports
        with closing(wires.sockets.open(socket.AF_INET, socket.SOCK_STREAM)) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(found[-1] if found else ("127.0.0.1", 0))
            listening.listen()
            found.append(listening.getsockname())
            socket.create_connection(found[-1], timeout=10).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(found[-1], timeout=10)
        with closing(socket.socket()) as other, pytest.raises(OSError, match="already in use"):
            other.bind(found[-1])
    assert found[0] == found[1]
    ports.release()
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(found[-1])
        other.listen()


@pytest.fixture
def _quick_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_quick_switches")
def test_connections_are_accepted_during_the_death() -> None:
    """The test ends the broker, whose loop accepts meanwhile."""

    class Connection:
        def shutdown(self, _: int) -> None: ...

    for _ in range(30):
        wires, stopped = Wires(), threading.Event()
        kept: list[Any] = [Connection() for _ in range(2_000)]
        for each in kept:
            wires.accepted(each)

        def accept(wires: Wires = wires, stopped: threading.Event = stopped, kept: list[Any] = kept) -> None:
            while not stopped.is_set():
                kept.append(Connection())
                wires.accepted(kept[-1])

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            wires.die()
        finally:
            stopped.set()
            thread.join()
