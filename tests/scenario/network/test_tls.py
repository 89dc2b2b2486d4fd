"""Frames through TLS: whole, split over records, larger than any buffer, and from files."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import struct
from pathlib import Path
from typing import Any, Self

import pytest
import trustme
from tests.scenario.network.harness import (
    EVENTUALLY_S,
    Later,
    echo,
    framed,
    no_descriptor_leaks,
    serving,
    turns,
    until,
)
from tests.scenario.network.tls_support import blocking_client, client_context, serving_tls

from barnabas.core.limits import HANDSHAKE_MS_MAX, LOG_LINES_PER_SECOND_MAX
from barnabas.core.regions import FileRegion
from barnabas.network import handshakes
from barnabas.network.connection import Connection
from barnabas.network.transport.exchange import Exchange
from barnabas.security.identity.principal import ANONYMOUS


class WholeFile:
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def fileno(self) -> int:
        return self._file.fileno()

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, position)

    def read_now(self, position: int, length: int) -> bytes:
        return self.read_at(position, length)


async def test_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with serving_tls(echo, tmp_path) as tls:
        client = await tls.connect()
        await client.send(*(b"%d" % number for number in range(100)))
        for number in range(100):
            assert await client.receive() == b"re:%d" % number
        (connection,) = tls.served.server
        assert connection.security_protocol == "SSL"
        assert connection.principal == ANONYMOUS
        assert tls.served.server.counters.handshakes.value == 1


@pytest.mark.parametrize("size", [1, 100, 16_383, 16_384, 16_385, 70_000, 300_000, 5_000_000])
async def test_frames_of_any_size(tmp_path: Path, size: int) -> None:
    """Equal frames in a row are received to their place, so that they end in the middle of a record."""
    payload = os.urandom(size)
    async with serving_tls(echo, tmp_path) as tls:
        client = await tls.connect()
        sending = asyncio.ensure_future(client.send(*[payload] * 5))
        for _ in range(5):
            assert await client.receive() == b"re:" + payload
        await sending


async def test_pipelined_requests_split_over_records(tmp_path: Path) -> None:
    data = b"".join(framed(os.urandom(size)) for size in (3, 40_000, 1, 0, 16_384, 900, 150_000, 7))
    async with serving_tls(echo, tmp_path) as tls:
        client = await tls.connect()

        async def send() -> None:
            position = 0
            for size in [1, 2, 5, 900, 16_384, 16_385, 60_000] * 20:
                client.writer.write(data[position : position + size])
                await client.writer.drain()
                await asyncio.sleep(0)
                position += size

        sending = asyncio.ensure_future(send())
        position = 0
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            assert await client.receive() == b"re:" + data[position + 4 : position + 4 + size]
            position += 4 + size
        await sending


async def test_what_waits_inside_tls_is_read_when_a_pause_ends(tmp_path: Path) -> None:
    """The poll does not see it: a record that holds several frames was taken from the socket as a whole."""
    later = Later()
    async with serving_tls(later, tmp_path, requests_in_flight_max=1) as tls:
        client = await tls.connect()
        await client.send(*[b"x" * 50] * 300, b"y" * 300_000)

        async def dispatched(count: int) -> None:
            await until(lambda: len(later.exchanges) >= count)

        for index in range(301):
            await dispatched(index + 1)
            later.answer(index)
            assert len(await client.receive()) in (53, 300_003)


async def test_pieces_of_files_are_sent(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)

    def answer(exchange: Exchange, frame: memoryview) -> None:
        position, length = struct.unpack(">ii", frame)
        exchange.respond([b"head", FileRegion(file, position, length), b"", FileRegion(file, 0, 0), b"tail"])

    with WholeFile(tmp_path / "file") as file:
        async with serving_tls(answer, tmp_path) as tls:
            client = await tls.connect()
            pieces = [(0, 10), (5, 70_000), (0, 3_000_000), (2_999_999, 1), (7, 0), (1, 200_000)]
            await client.send(*(struct.pack(">ii", *piece) for piece in pieces))
            for position, length in pieces:
                assert await client.receive() == b"head" + content[position : position + length] + b"tail"


async def test_a_file_that_is_cut_short_costs_the_connection(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"short")
    with WholeFile(tmp_path / "file") as file:
        region = FileRegion(file, 0, 99)
        async with serving_tls(lambda exchange, _: exchange.respond([region]), tmp_path) as tls:
            client = await tls.connect()
            await client.send(b"x")
            assert await client.sees_the_end()
            assert tls.served.closed("send_failed") == 1


async def test_a_reader_that_is_slow_gets_everything(tmp_path: Path) -> None:
    answer = os.urandom(8_000_000)
    async with serving_tls(lambda exchange, _: exchange.respond([answer]), tmp_path) as tls:
        client, other = await tls.connect(), await tls.connect()
        await client.send(b"x", b"y")
        await asyncio.sleep(0.2)
        await other.send(b"z")
        assert await other.receive() == answer
        for _ in range(2):
            assert await client.receive() == answer


async def test_the_end_is_told(tmp_path: Path) -> None:
    """A client can tell it from a cut: TLS ends by a message of its own."""
    async with serving_tls(
        lambda exchange, _: exchange.respond_and_close([b"bye"], "enough"), tmp_path
    ) as tls:
        client = await tls.connect()
        await client.send(b"x")
        assert await client.receive() == b"bye"
        assert await client.reader.read() == b""


async def test_a_client_that_ends_gets_what_it_is_owed(tmp_path: Path) -> None:
    later = Later()
    async with serving_tls(later, tmp_path) as tls:
        client = await tls.connect()
        await client.send(b"x")
        await until(lambda: len(later.exchanges) == 1)
        client.writer.close()  # says so, and waits for the broker to say the same
        await turns()
        assert len(tls.served.server) == 1
        later.answer(0)
        await until(lambda: len(tls.served.server) == 0)
        assert tls.served.closed("by_peer") == 1


# --- authentication by certificates ---


async def test_a_certificate_makes_a_principal(tmp_path: Path) -> None:
    authority = trustme.CA()
    async with serving_tls(echo, tmp_path, {"ssl.client.auth": "required"}, authority=authority) as tls:
        alice = authority.issue_cert("alice@example.org", common_name="alice")
        client = await tls.connect(client_context(authority, alice))
        await client.send(b"x")
        assert await client.receive() == b"re:x"
        (connection,) = tls.served.server
        assert str(connection.principal).startswith("User:CN=alice,OU=")


@pytest.mark.parametrize("wanted", ["required", "requested"])
async def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, wanted: str, caplog: pytest.LogCaptureFixture
) -> None:
    authority = trustme.CA()
    async with serving_tls(echo, tmp_path, {"ssl.client.auth": wanted}, authority=authority) as tls:
        stranger = client_context(authority, trustme.CA().issue_cert("mallory@example.org"))
        for _ in range(3):
            client = await tls.connect(stranger)
            assert await client.sees_the_end()
        assert tls.failures("bad_certificate") == 3
        assert len(tls.served.server) == 0
        assert 1 <= caplog.text.count("the client's certificate is not accepted") <= LOG_LINES_PER_SECOND_MAX


@pytest.mark.parametrize(("wanted", "let_in"), [("required", False), ("requested", True), ("none", True)])
async def test_a_client_without_a_certificate(tmp_path: Path, wanted: str, *, let_in: bool) -> None:
    async with serving_tls(echo, tmp_path, {"ssl.client.auth": wanted}) as tls:
        client = await tls.connect()
        if let_in:
            await client.send(b"x")
            assert await client.receive() == b"re:x"
        else:
            assert await client.sees_the_end()
            assert tls.failures("no_certificate") == 1


async def test_a_name_that_no_rule_takes_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    given = {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=bob.*$/bob/"}
    async with serving_tls(echo, tmp_path, given, authority=authority) as tls:
        client = await tls.connect(client_context(authority, authority.issue_cert("a@b.c", common_name="a")))
        assert await client.sees_the_end()
        assert tls.failures("unknown_name") == 1


async def test_a_client_that_refuses_the_broker_is_counted(tmp_path: Path) -> None:
    async with serving_tls(echo, tmp_path) as tls:
        port, stranger = tls.served.port, client_context(trustme.CA())
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.to_thread(blocking_client, port, stranger)
        await until(lambda: tls.failures("refused_by_peer") == 1)


# --- what else comes to such a port ---


async def test_a_plaintext_client_gets_a_clean_close_and_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving_tls(echo, tmp_path) as tls:
        for data in (framed(b"x" * 30), b"GET / HTTP/1.1\r\n\r\n", b"\0"):
            client = await tls.served.connect()
            await client.send_raw(data)
            assert await client.sees_the_end()
        assert tls.failures("not_tls") == 3
        assert 1 <= caplog.text.count("the client does not speak TLS") <= LOG_LINES_PER_SECOND_MAX


async def test_a_plaintext_client_is_not_reset(tmp_path: Path) -> None:
    """Its bytes are read and discarded: the client sees an orderly end, and no reset."""
    async with serving_tls(echo, tmp_path) as tls:
        for data in (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 500, framed(b"x" * 30)):
            reader, writer = await asyncio.open_connection("127.0.0.1", tls.served.port)
            writer.write(data)
            async with asyncio.timeout(EVENTUALLY_S):
                assert await reader.read() == b""
            writer.close()


async def test_noise_that_begins_like_tls(tmp_path: Path) -> None:
    async with serving_tls(echo, tmp_path) as tls:
        for data in (
            b"\x16" * 600,
            b"\x16\x03\x01\x00\x10" + bytes(16),
            b"\x16\x03\x01\xff\xff" + bytes(70_000),
        ):
            client = await tls.served.connect()
            await client.send_raw(data)
            await until(lambda: len(tls.served.server._handshakes) == 0)
        honest = await tls.connect()
        await honest.send(b"x")
        assert await honest.receive() == b"re:x"


async def test_a_port_scan_leaves_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with no_descriptor_leaks():
        async with serving_tls(echo, tmp_path) as tls:
            for index in range(50):
                client = await tls.served.connect()
                client.reset() if index % 2 else client.close()
            await until(lambda: tls.failures("gone") == 50)
            assert tls.served.server._by_ip == {}
            assert (
                1
                <= caplog.text.count("the client closed the connection during the handshake")
                <= LOG_LINES_PER_SECOND_MAX
            )


async def test_a_client_that_is_gone_before_its_greeting_is_read(tmp_path: Path) -> None:
    """Its sent bytes can still be read, and Python's TLS closes the descriptor before that."""
    with no_descriptor_leaks():
        async with serving_tls(echo, tmp_path) as tls:
            for _ in range(4):
                gone = socket.create_connection(("127.0.0.1", tls.served.port))
                gone.sendall(b"\x16\x03\x01\x02\x00\x01" + bytes(100))
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                gone.close()  # resets it, before the server has had a turn
            await until(lambda: tls.failures("gone") == 4)
            assert len(tls.served.server._handshakes) == 0
            assert tls.served.server._by_ip == {}
            honest = await asyncio.to_thread(blocking_client, tls.served.port, client_context(tls.authority))
            honest.close()


async def test_a_fault_of_one_handshake_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail = handshakes.Handshakes._fail

    def fail_badly(self: handshakes.Handshakes, *arguments: Any) -> None:
        fail(self, *arguments)
        raise RuntimeError("a fault")

    async with serving_tls(echo, tmp_path) as tls:
        monkeypatch.setattr(handshakes.Handshakes, "_fail", fail_badly)
        for _ in range(3):
            stranger = socket.create_connection(("127.0.0.1", tls.served.port))
            stranger.sendall(b"not TLS")
            stranger.close()
        honest = await tls.connect()
        await honest.send(b"x")
        assert await honest.receive() == b"re:x"
        assert tls.failures("not_tls") == 3


async def test_a_handshake_has_a_deadline(tmp_path: Path) -> None:
    async with serving_tls(echo, tmp_path) as tls:
        silent, slow = await tls.served.connect(), await tls.served.connect()
        await slow.send_raw(b"\x16\x03\x01")
        await until(lambda: len(tls.served.server._handshakes) == 2)
        tls.served.clock.advance(HANDSHAKE_MS_MAX + 1)
        honest = await tls.connect()
        tls.served.server.sweep()
        assert await silent.sees_the_end()
        assert await slow.sees_the_end()
        assert tls.failures("too_slow") == 2
        await honest.send(b"x")
        assert await honest.receive() == b"re:x"


async def test_who_holds_a_place_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKES_MAX", 4)
    async with serving_tls(echo, tmp_path) as tls:
        holders = [await tls.served.connect() for _ in range(4)]
        await until(lambda: len(tls.served.server._handshakes) == 4)
        honest = await tls.connect()
        await honest.send(b"x")
        assert await honest.receive() == b"re:x"
        assert await holders[0].sees_the_end()
        assert tls.failures("crowded_out") == 1
        assert len(tls.served.server._handshakes) == 3


async def test_handshakes_count_as_connections(tmp_path: Path) -> None:
    async with serving_tls(echo, tmp_path, max_connections_per_ip=2) as tls:
        await tls.served.connect()
        await tls.connect()
        third = await tls.served.connect()
        assert await third.sees_the_end()


async def test_many_at_once_do_not_stop_those_that_are_served(tmp_path: Path) -> None:
    async with serving_tls(echo, tmp_path) as tls:
        served, context = await tls.connect(), client_context(tls.authority)
        coming = [asyncio.ensure_future(tls.connect(context)) for _ in range(40)]
        for number in range(40):
            await served.send(b"%d" % number)
            assert await served.receive() == b"re:%d" % number
        for client in [await each for each in coming]:
            await client.send(b"x")
            assert await client.receive() == b"re:x"


async def test_a_server_that_stops_ends_handshakes(tmp_path: Path) -> None:
    with no_descriptor_leaks():
        async with serving_tls(echo, tmp_path) as tls:
            silent = await tls.served.connect()
            await until(lambda: len(tls.served.server._handshakes) == 1)
            await tls.served.server.stop()
            assert await silent.sees_the_end()


async def test_a_port_scan_of_a_plaintext_port_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with no_descriptor_leaks():
        async with serving(echo) as served:
            for index in range(50):
                client = await served.connect()
                client.reset() if index % 2 else client.close()
            await until(lambda: served.closed("by_peer") == 50)
            lines = caplog.text.count("closed by the client before its first byte")
            assert 1 <= lines <= LOG_LINES_PER_SECOND_MAX
            honest = await served.connect()
            await honest.send(b"x")
            assert await honest.receive() == b"re:x"
            honest.close()
            await until(lambda: served.closed("by_peer") == 51)
            assert caplog.text.count("closed by the client before its first byte") == lines


async def test_a_tls_client_on_a_plaintext_port(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo) as served:
        with pytest.raises((ConnectionError, OSError)):
            await asyncio.open_connection("127.0.0.1", served.port, ssl=client_context(trustme.CA()))
        await until(lambda: served.closed("bad_frame") == 1)
        assert caplog.text.count("the client speaks TLS, this listener does not") == 1


async def test_a_listener_that_promises_more_than_it_has_does_not_start() -> None:
    for protocol in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        with pytest.raises(ValueError, match=r"no SASL gate for|no TLS context for"):
            async with serving(echo, protocol=protocol):
                pass


async def test_a_connection_that_cannot_be_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    async with serving_tls(echo, tmp_path, max_connections_per_ip=1) as tls:
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "__init__", fail)
            for _ in range(3):
                assert await (await tls.connect()).sees_the_end()
        client = await tls.connect()
        await client.send(b"x")
        assert await client.receive() == b"re:x"
