"""Connections of a broker that was killed."""

from __future__ import annotations

import socket
from contextlib import closing

from barnabas.testing.running.wires import Wires


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
