"""Connections come, are counted, grow old and end; the server stops in good order."""

import asyncio
import errno
import os
import resource
import socket
import struct

import pytest
from tests.scenario.network.harness import (
    Later,
    Served,
    echo,
    framed,
    make_server,
    no_descriptor_leaks,
    open_descriptors,
    serving,
    turns,
    until,
)
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.network.connection import Connection
from barnabas.network.counters import Rejected
from barnabas.network.transport.exchange import Exchange
from barnabas.security.identity.principal import ANONYMOUS


def loopback(name: str, port: int = 0) -> ListenerEndpoint:
    return ListenerEndpoint(name, Endpoint("127.0.0.1", port))


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


def _resolves_to_ipv6(name: str) -> bool:
    return has_ipv6() and any(found[4][0] == "::1" for found in socket.getaddrinfo(name, 0))


async def test_a_thousand_connections_are_served_and_leave_no_descriptor() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(1_000, (soft - 100) // 2)
    with no_descriptor_leaks():
        async with serving(echo) as served:
            clients = [await served.connect() for _ in range(count)]
            await asyncio.gather(*(client.send(b"%d" % number) for number, client in enumerate(clients)))
            for number, client in enumerate(clients):
                assert await client.receive() == b"re:%d" % number
            assert len(served.server) == count
            for client in clients[: count // 2]:
                client.close()
            await until(lambda: len(served.server) == count - count // 2)


async def test_the_cap_per_ip_turns_away_one_more_and_frees_with_a_close() -> None:
    async with serving(echo, max_connections_per_ip=2) as served:
        first, second = await served.connect(), await served.connect()
        third = await served.connect()
        assert await third.sees_the_end()
        for client in (first, second):
            await client.send(b"x")
            assert await client.receive() == b"re:x"
        first.close()
        await until(lambda: len(served.server) == 1)
        second.close()
        await until(lambda: len(served.server) == 0)
        assert not served.server._by_ip, "addresses that are gone are not remembered"
        fourth = await served.connect()
        await fourth.send(b"y")
        assert await fourth.receive() == b"re:y"
        assert served.server.counters.rejected[Rejected.PER_IP].value == 1


async def test_an_override_beats_the_cap_per_ip() -> None:
    async with serving(
        echo, max_connections_per_ip=0, max_connections_per_ip_overrides="127.0.0.1:1"
    ) as served:
        client = await served.connect()
        await client.send(b"x")
        assert await client.receive() == b"re:x"
        assert await (await served.connect()).sees_the_end()


@pytest.mark.parametrize("host", ["localhost", "127.1", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "127.0.0.001"])
async def test_an_override_names_a_host_in_any_way(host: str) -> None:
    async with serving(echo, max_connections_per_ip_overrides=f"{host}:1") as served:
        client = await served.connect()
        await client.send(b"x")
        assert await client.receive() == b"re:x"
        assert await (await served.connect()).sees_the_end()


async def test_the_total_cap_counts_all_addresses() -> None:
    async with serving(echo, max_connections=1) as served:
        first = await served.connect()
        await first.send(b"x")
        assert await first.receive() == b"re:x"
        assert await (await served.connect()).sees_the_end()
        assert served.server.counters.rejected[Rejected.TOTAL].value == 1


async def test_clients_in_any_number_leave_room_for_brokers() -> None:
    async with serving(echo, also=["PLAINTEXT"], max_connections=1) as served:
        client, broker = await served.connect(), await served.on("PLAINTEXT").connect()
        for each in (client, broker):
            await each.send(b"x")
            assert await each.receive() == b"re:x"
        assert await (await served.connect()).sees_the_end()


async def test_a_listener_has_a_cap_of_its_own() -> None:
    async with serving(echo, also=["OTHER"], listener_name_test_max_connections=1) as served:
        first = await served.connect()
        for each in (first, await served.on("OTHER").connect(), await served.on("OTHER").connect()):
            await each.send(b"x")
            assert await each.receive() == b"re:x"
        assert await (await served.connect()).sees_the_end()
        assert served.server.counters.rejected[Rejected.PER_LISTENER].value == 1
        first.close()
        await until(lambda: len(served.server) == 2)
        again = await served.connect()
        await again.send(b"y")
        assert await again.receive() == b"re:y"


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async with serving(echo, connections_max_idle_ms=1_000) as served:
        idle, busy = await served.connect(), await served.connect()
        await until(lambda: len(served.server) == 2)
        served.clock.advance(ms=900)
        await busy.send(b"x")
        await busy.receive()
        served.clock.advance(ms=200)
        served.scheduler.run_due()
        assert await idle.sees_the_end()
        await busy.send(b"y")
        assert await busy.receive() == b"re:y"
        assert served.closed("idle") == 1


async def test_a_peer_that_went_while_it_was_throttled_is_forgotten_as_idle() -> None:
    def throttled(exchange: Exchange, frame: memoryview) -> None:
        exchange.connection.throttle(1_000_000_000)
        echo(exchange, frame)

    async with serving(throttled, connections_max_idle_ms=1_000) as served:
        client = await served.connect()
        await client.send(b"x")
        assert await client.receive() == b"re:x"
        client.close()
        await turns()
        served.clock.advance(ms=900)
        served.server.sweep()
        assert len(served.server) == 1
        served.clock.advance(ms=200)
        served.server.sweep()
        assert len(served.server) == 0
        assert served.closed("idle") == 1


async def test_a_connection_that_awaits_an_answer_is_not_idle() -> None:
    later = Later()
    async with serving(later, connections_max_idle_ms=1_000) as served:
        client = await served.connect()
        await client.send(b"poll")
        await until(lambda: len(later.exchanges) == 1)
        served.clock.advance(ms=60_000)
        served.server.sweep()
        later.answer(0)
        assert await client.receive() == b"re:poll"
        served.server.sweep()
        assert len(served.server) == 1, "the answer was a sign of life"


async def test_a_request_that_trickles_in_is_closed_at_its_deadline() -> None:
    async with serving(echo, frame_arrival_ms_max=1_000) as served:
        client = await served.connect()
        data = framed(b"z" * 1_000)
        for index in range(11):
            before = served.server.counters.received.value
            await client.send_raw(data[index : index + 1])
            await served.receives_more_than(before)
            served.server.sweep()
            assert len(served.server) == 1
            served.clock.advance(ms=100)
        served.server.sweep()
        assert served.closed("slow_request") == 1
        assert await client.sees_the_end()


async def test_a_large_request_that_makes_progress_may_take_longer() -> None:
    async with serving(echo, frame_arrival_ms_max=1_000) as served:
        client = await served.connect()
        await client.send_raw(struct.pack(">i", 200_000) + bytes(100_000))
        await until(lambda: served.server.counters.received.value == 100_004)
        served.clock.advance(ms=5_000)
        served.server.sweep()
        await client.send_raw(bytes(100_000))
        assert len(await client.receive()) == 200_003


async def test_a_half_closed_peer_waits_for_its_answers_only_so_long() -> None:
    later = Later()
    async with serving(later, half_closed_ms_max=1_000) as served:
        client = await served.connect()
        await client.send(b"poll")
        client.sock.shutdown(socket.SHUT_WR)
        await until(lambda: any(connection._closing is not None for connection in served.server))
        served.server.sweep()
        assert len(served.server) == 1
        served.clock.advance(ms=1_001)
        served.server.sweep()
        assert served.closed("by_peer") == 1
        later.answer(0)


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_ipv6_is_served(host: str) -> None:
    async with serving(echo, host=host) as served:
        client = await served.connect("::1")
        await client.send(b"six")
        assert await client.receive() == b"re:six"
        (connection,) = served.server
        assert (connection.peer_host, connection.local_host) == ("::1", "::1")


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback here")
async def test_no_host_means_both_families_and_ipv4_peers_keep_their_address() -> None:
    async with serving(echo, host="") as served:
        six, four = await served.connect("::1"), await served.connect("127.0.0.1")
        for client in (six, four):
            await client.send(b"x")
            assert await client.receive() == b"re:x"
        assert {connection.peer_host for connection in served.server} == {"::1", "127.0.0.1"}


async def test_a_name_with_an_address_that_is_not_here_is_served_on_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))
    elsewhere = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [elsewhere, here])
    async with serving(echo, host="both") as served:
        client = await served.connect()
        await client.send(b"x")
        assert await client.receive() == b"re:x"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [elsewhere])
    with pytest.raises(OSError, match="cannot listen on neither:0"):
        async with serving(echo, host="neither"):
            pass


async def test_localhost_is_served_on_every_address_that_a_client_may_try() -> None:
    async with serving(echo, host="localhost") as served:
        hosts = {"127.0.0.1"} | ({"::1"} if _resolves_to_ipv6("localhost") else set())
        for host in hosts:
            client = await served.connect(host)
            await client.send(b"x")
            assert await client.receive() == b"re:x"


async def test_a_connection_knows_where_it_came_from() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await until(lambda: len(served.server) == 1)
        (connection,) = served.server
        peer_port = client.sock.getsockname()[1]
        assert connection.connection_id == f"127.0.0.1:{served.port}-127.0.0.1:{peer_port}-1"
        assert (connection.listener_name, connection.local_port) == ("TEST", served.port)
        assert connection.security_protocol == "PLAINTEXT"
        assert connection.principal == ANONYMOUS


async def test_a_bound_port_is_idle_until_the_server_starts() -> None:
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    server = make_server(clock, scheduler, Metrics())
    one, two = server.bind([loopback("ONE"), loopback("TWO")])
    assert one.bound.endpoint.port != two.bound.endpoint.port
    served = Served(server, clock, scheduler, two.bound.endpoint.port)
    early = await served.connect()
    await early.send(b"early")
    await turns()
    assert len(server) == 0
    server.start(asyncio.get_running_loop(), echo)
    assert await early.receive() == b"re:early"
    assert [connection.listener_name for connection in server] == ["TWO"]
    await server.stop()
    served.close_clients()


async def test_a_port_in_use_is_refused_with_its_address_and_opens_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, no_descriptor_leaks():
        port = taken.getsockname()[1]
        clock = ManualClock()
        server = make_server(clock, ManualScheduler(clock), Metrics())
        with pytest.raises(OSError, match=f"127.0.0.1:{port}") as caught:
            server.bind([loopback("ONE"), loopback("TWO", port)])
        assert caught.value.errno == errno.EADDRINUSE
        assert server.listeners == []
        await server.stop()


async def test_stopping_lets_the_answers_owed_leave_and_takes_no_new_requests() -> None:
    later = Later()
    async with serving(later) as served:
        client, quiet = await served.connect(), await served.connect()
        await client.send(b"a", b"b")
        await until(lambda: len(later.exchanges) == 2 and len(served.server) == 2)
        stopping = asyncio.ensure_future(served.server.stop(deadline_ms=5_000))
        assert await quiet.sees_the_end()
        await client.send(b"too late")
        with pytest.raises(ConnectionRefusedError):
            await served.connect()
        later.answer(0)
        assert await client.receive() == b"re:a"
        assert not stopping.done()
        later.answer(1)
        assert await client.receive() == b"re:b"
        await stopping
        assert len(later.exchanges) == 2
        assert await client.sees_the_end()


async def test_stopping_ends_at_its_deadline_with_answers_outstanding() -> None:
    later = Later()
    async with serving(later) as served:
        client = await served.connect()
        await client.send(b"a")
        await until(lambda: len(later.exchanges) == 1)
        stopping = asyncio.ensure_future(served.server.stop(deadline_ms=5_000))
        await turns()
        assert not stopping.done()
        served.clock.advance(ms=5_000)
        served.scheduler.run_due()
        await stopping
        assert await client.sees_the_end()
        assert len(served.server) == 0


async def test_running_out_of_descriptors_pauses_accepting_and_hurts_no_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(b"before")
        await client.receive()
        waiting = socket.socket()
        waiting.setblocking(False)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(open_descriptors()) + 1
        spare: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
        try:
            while True:
                try:
                    spare.append(os.dup(0))
                except OSError:
                    break
            await asyncio.get_running_loop().sock_connect(waiting, ("127.0.0.1", served.port))
            await until(lambda: any("cannot accept" in record.message for record in caplog.records))
            await turns(100)
            assert len(caplog.records) == 1, "one attempt, then a pause"
            await client.send(b"during")
            assert await client.receive() == b"re:during"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for descriptor in spare:
                os.close(descriptor)
        served.clock.advance(ms=1_000)
        served.scheduler.run_due()
        await until(lambda: len(served.server) == 2)
        waiting.close()


async def test_the_figures_are_rendered() -> None:
    clock = ManualClock()
    metrics = Metrics()
    server = make_server(clock, ManualScheduler(clock), metrics)
    (listener,) = server.bind([loopback("PLAINTEXT")])
    server.start(asyncio.get_running_loop(), echo)
    served = Served(server, clock, ManualScheduler(clock), listener.bound.endpoint.port)
    client = await served.connect()
    await client.send(b"12345")
    await client.receive()
    text = render_prometheus(metrics)
    assert "barnabas_network_connections 1" in text
    assert "barnabas_network_connections_accepted_total 1\n" in text
    assert "barnabas_network_unauthenticated_connections 0\n" in text
    assert "barnabas_network_received_bytes_total 9" in text
    assert "barnabas_network_sent_bytes_total 12" in text
    client.close()
    await until(lambda: len(server) == 0)
    assert 'barnabas_network_connections_closed_total{reason="by_peer"} 1' in render_prometheus(metrics)
    await server.stop()


async def test_a_connection_that_ends_within_a_large_request_gives_its_buffer_back() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send_raw(struct.pack(">i", 900_000) + bytes(300_000))
        await until(lambda: served.server.counters.received.value == 300_004)
        assert served.server.buffers._free_bytes == 0
        client.close()
        await until(lambda: len(served.server) == 0)
        assert served.server.buffers._free_bytes > 0


@pytest.mark.parametrize("fails_in", ["__init__", "start"])
async def test_a_connection_that_cannot_be_made_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, fails_in: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    with no_descriptor_leaks():
        async with serving(echo, max_connections_per_ip=1) as served:
            with monkeypatch.context() as patched:
                patched.setattr(Connection, fails_in, fail)
                for _ in range(3):
                    assert await (await served.connect()).sees_the_end()
            client = await served.connect()
            await client.send(b"x")
            assert await client.receive() == b"re:x"
