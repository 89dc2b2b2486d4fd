"""A gate before a listener: a dispatch for each connection, and bounds until it has authenticated."""

from __future__ import annotations

from typing import Any

import pytest
from tests.scenario.network.harness import echo, serving, until

from barnabas.network.transport.exchange import Dispatch, Exchange, ExchangeConnection
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal


class NameFirst:
    """The first frame of a connection is its user's name; what follows goes to the server's dispatch."""

    frame_bytes_max = 16

    def admit(self, connection: ExchangeConnection) -> Dispatch:
        assert connection.principal == ANONYMOUS

        def dispatch(exchange: Exchange, frame: memoryview) -> None:
            if connection.principal == ANONYMOUS:
                connection.authenticated(KafkaPrincipal.user(bytes(frame).decode()))
                exchange.respond([b"hello"])
            else:
                exchange.respond([str(connection.principal).encode(), b":", bytes(frame)])

        return dispatch


async def test_each_connection_has_a_dispatch_of_its_own() -> None:
    async with serving(echo, protocol="SASL_PLAINTEXT", gate=NameFirst()) as served:
        alice, bob = await served.connect(), await served.connect()
        await alice.send(b"alice")
        await bob.send(b"bob", b"one")
        await alice.send(b"two")
        assert [await bob.receive(), await bob.receive()] == [b"hello", b"User:bob:one"]
        assert [await alice.receive(), await alice.receive()] == [b"hello", b"User:alice:two"]
        assert {str(connection.principal) for connection in served.server} == {"User:alice", "User:bob"}


async def test_requests_are_small_until_the_peer_has_authenticated() -> None:
    async with serving(echo, protocol="SASL_PLAINTEXT", gate=NameFirst()) as served:
        client, stranger = await served.connect(), await served.connect()
        await client.send(b"alice", bytes(17))
        assert await client.receive() == b"hello"
        assert await client.receive() == b"User:alice:" + bytes(17)
        await stranger.send(bytes(17))
        assert await stranger.sees_the_end()
        assert served.closed("bad_frame") == 1


async def test_a_peer_that_does_not_authenticate_in_time_is_closed() -> None:
    async with serving(
        echo, protocol="SASL_PLAINTEXT", gate=NameFirst(), authentication_ms_max=1_000
    ) as served:
        client, silent = await served.connect(), await served.connect()
        await client.send(b"alice")
        assert await client.receive() == b"hello"
        await until(lambda: len(served.server) == 2)
        served.clock.advance(1_001)
        served.server.sweep()
        assert await silent.sees_the_end()
        assert served.closed("unauthenticated") == 1
        await client.send(b"still here")
        assert await client.receive() == b"User:alice:still here"


@pytest.mark.parametrize("limit", ["connections_max", "max_connections"])
async def test_a_crowd_of_strangers_keeps_out_no_client_that_authenticates(limit: str) -> None:
    settings: dict[str, Any] = {limit: 4}
    async with serving(echo, protocol="SASL_PLAINTEXT", gate=NameFirst(), **settings) as served:
        alice = await served.connect()
        await alice.send(b"alice")
        assert await alice.receive() == b"hello"
        crowd = [await served.connect() for _ in range(20)]
        await until(lambda: served.server.counters.accepted.value == 21)
        assert len(served.server) == 4
        bob = await served.connect()
        await bob.send(b"bob", b"one")
        assert [await bob.receive(), await bob.receive()] == [b"hello", b"User:bob:one"]
        await alice.send(b"still here")
        assert await alice.receive() == b"User:alice:still here"
        assert all([await each.sees_the_end() for each in crowd[:18]])
        assert served.closed("unauthenticated") == 18


async def test_clients_that_have_authenticated_are_never_closed_for_others() -> None:
    async with serving(echo, protocol="SASL_PLAINTEXT", gate=NameFirst(), connections_max=2) as served:
        clients = [await served.connect() for _ in range(2)]
        for client in clients:
            await client.send(b"alice")
            assert await client.receive() == b"hello"
        late = await served.connect()
        assert await late.sees_the_end()
        for client in clients:
            await client.send(b"x")
            assert await client.receive() == b"User:alice:x"
