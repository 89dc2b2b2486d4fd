"""Answers on their way out: file regions, slow readers, readers that never read, peers that vanish."""

import asyncio
import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest
from tests.scenario.network.harness import Later, framed, serving, turns, until
from tests.support.waiting import PATIENCE_S

from barnabas.core.regions import FileRegion
from barnabas.network.transport.exchange import Exchange
from barnabas.network.transport.output import Output
from barnabas.node.background_threads import ThreadBackground


class File:
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def fileno(self) -> int:
        return self._file.fileno()

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), length, position)

    def read_now(self, position: int, length: int) -> bytes:
        return self.read_at(position, length)

    def close(self) -> None:
        self._file.close()


class FileOnASlowDisk(File):
    """Of which nothing is in memory, and a disk that waits for the test's word."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_read = False
        self.may_read = threading.Event()

    def read_at(self, position: int, length: int) -> bytes:
        assert self.may_read.wait(PATIENCE_S), "the test never let the disk go on"
        self.is_read = True
        return super().read_at(position, length)

    def read_now(self, position: int, length: int) -> bytes | None:  # type: ignore[override]
        return super().read_at(position, length) if self.is_read else None


def file_of(path: Path, size: int) -> File:
    path.write_bytes(os.urandom(1 << 16) * (size >> 16))
    return File(path)


async def test_a_region_goes_between_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"0123456789")
    file = File(tmp_path / "log")

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond(
            [b"<", FileRegion(file, 2, 3), b"|", FileRegion(file, 0, 0), FileRegion(file, 9, 1), b">"]
        )

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"1", b"2")
        assert [await client.receive() for _ in range(2)] == [b"<234|9>", b"<234|9>"]
        assert served.server.counters.sent.value == 2 * (4 + 7)
    file.close()


async def test_a_region_larger_than_all_buffers_reaches_a_slow_reader_though_its_file_is_deleted(
    tmp_path: Path,
) -> None:
    size = 32 << 20
    file = file_of(tmp_path / "log", size)
    digest = hashlib.sha256((tmp_path / "log").read_bytes()).digest()

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([b"h" * 7, FileRegion(file, 0, size), b"t" * 5])

    async with serving(dispatch) as served:
        client = await served.connect(receive_buffer_bytes=8_192)
        await client.send(b"fetch")
        assert await client.receive_exactly(4 + 7) == (size + 12).to_bytes(4) + b"h" * 7
        (tmp_path / "log").unlink()
        (connection,) = served.server
        assert connection._output.memory_bytes < 100, "regions are no memory"
        seen = hashlib.sha256()
        left = size
        while left:
            some = await client.receive_exactly(min(left, 1 << 20))
            seen.update(some)
            left -= len(some)
        assert seen.digest() == digest
        assert await client.receive_exactly(5) == b"ttttt"
        await client.send(b"again")
        assert len(await client.receive()) == size + 12
    file.close()


@pytest.mark.parametrize(("length", "arrives"), [(100, b""), (100_000, (100_000).to_bytes(4) + b"short")])
async def test_a_region_beyond_the_end_of_its_file_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, length: int, arrives: bytes
) -> None:
    (tmp_path / "log").write_bytes(b"short")
    file = File(tmp_path / "log")

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([FileRegion(file, 0, length)])

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"fetch")
        assert await client.receive_exactly(len(arrives)) == arrives
        assert await client.sees_the_end()
        assert served.closed("send_failed") == 1
    assert len(caplog.records) == 1
    file.close()


async def test_a_region_whose_file_was_closed_costs_one_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = file_of(tmp_path / "log", 1 << 16)
    file.close()

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([FileRegion(file, 0, 1 << 16)] if bytes(frame) == b"fetch" else [bytes(frame)])

    async with serving(dispatch) as served:
        client, other = await served.connect(), await served.connect()
        await client.send(b"fetch")
        assert await client.receive_exactly(4) == (1 << 16).to_bytes(4)
        assert await client.sees_the_end()
        await other.send(b"fine")
        assert await other.receive() == b"fine"
    assert served.closed("own_fault") == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_large_answers_in_memory_arrive_whole() -> None:
    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        count = int(bytes(frame))
        exchange.respond([bytes([number % 251]) * 1_000 for number in range(count)])

    async with serving(dispatch) as served:
        client = await served.connect(receive_buffer_bytes=8_192)
        await client.send(b"3", b"3000", b"1", b"300")
        for count in (3, 3000, 1, 300):
            assert await client.receive() == b"".join(
                bytes([number % 251]) * 1_000 for number in range(count)
            )


async def test_a_peer_that_does_not_read_is_no_longer_read_either_and_recovers() -> None:
    requests: list[bytes] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        requests.append(bytes(frame))
        exchange.respond([bytes(512 * 1024)])

    async with serving(dispatch, socket_send_buffer_bytes=65_536) as served:
        client = await served.connect(receive_buffer_bytes=8_192)
        await client.send(*(b"%d" % number for number in range(200)))
        await until(lambda: len(requests) > 2)
        await turns(100)
        (connection,) = served.server
        assert len(requests) < 20
        assert connection._output.memory_bytes < 8 << 20
        for _ in range(200):
            assert len(await client.receive()) == 512 * 1024
        assert len(requests) == 200


async def test_answers_beyond_the_output_cap_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    async with serving(later, output_bytes_max=4 << 20, socket_send_buffer_bytes=65_536) as served:
        client = await served.connect(receive_buffer_bytes=8_192)
        await client.send(*(b"%d" % number for number in range(20)))
        await until(lambda: len(later.exchanges) == 20)
        for exchange in later.exchanges:
            exchange.respond([bytes(1 << 20)])
        assert served.closed("output_full") == 1
        assert len(served.server) == 0
    assert len(caplog.records) == 1


async def test_unread_answers_of_all_connections_have_a_bound_that_closes_the_slowest() -> None:
    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([bytes(int(bytes(frame)) << 20)])

    async with serving(
        dispatch, unread_bytes_max=10 << 20, unread_patience_ms=1_000, socket_send_buffer_bytes=65_536
    ) as served:
        slow = [await served.connect(receive_buffer_bytes=8_192) for _ in range(3)]
        for client, size in zip(slow, (b"4", b"8", b"4"), strict=True):
            await client.send(size)
        await until(lambda: sum(each.queued_bytes for each in served.server) > 14 << 20)
        served.clock.advance(ms=900)
        served.server.sweep()
        assert len(served.server) == 3, "all of them began a moment ago"
        served.clock.advance(ms=200)
        new = await served.connect(receive_buffer_bytes=8_192)
        await new.send(b"2")
        await until(lambda: served.closed("output_full") == 1)
        assert sorted(each.queued_bytes >> 20 for each in served.server)[-2:] == [3, 3], "the largest is gone"
        assert len(await new.receive()) == 2 << 20


async def test_a_reader_that_never_reads_is_closed_at_its_deadline_but_not_while_it_takes_bytes() -> None:
    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([bytes(4 << 20)])

    async with serving(
        dispatch,
        output_stalled_ms_max=1_000,
        connections_max_idle_ms=10,
        connection_failed_authentication_delay_ms=0,
        socket_send_buffer_bytes=65_536,
    ) as served:
        client = await served.connect(receive_buffer_bytes=8_192)
        await client.send(b"fetch")
        await until(lambda: served.server.counters.sent.value > 0)
        await turns()
        served.clock.advance(ms=900)
        sent = served.server.counters.sent.value
        await client.receive_exactly(1 << 20)
        await until(lambda: served.server.counters.sent.value > sent)
        served.clock.advance(ms=900)
        served.server.sweep()
        assert len(served.server) == 1
        while len(served.server):  # the kernel may still take some of what its peer made room for
            await turns()
            served.clock.advance(ms=1_001)
            served.server.sweep()
        assert served.closed("stalled_reader") == 1


async def test_a_peer_that_resets_in_the_middle_of_an_answer_is_forgotten(tmp_path: Path) -> None:
    file = file_of(tmp_path / "log", 16 << 20)

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([FileRegion(file, 0, 16 << 20)])

    async with serving(dispatch) as served:
        client = await served.connect(receive_buffer_bytes=8_192)
        await client.send(b"fetch")
        await client.receive_exactly(1_000)
        client.reset()
        await until(lambda: served.closed("by_peer") == 1)
        assert len(served.server) == 0
    file.close()


async def test_answers_of_one_turn_leave_in_one_send() -> None:
    sends: list[int] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([bytes(frame)])

    async with serving(dispatch) as served:
        client = await served.connect()
        await turns()
        (connection,) = served.server

        class Watched(socket.socket):
            def __init__(self, sock: socket.socket) -> None:
                self._sock = sock

            def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]  # as it is called
                sends.append(len(data))
                return self._sock.send(data)

        output = connection._output
        assert isinstance(output, Output)
        output._socket = Watched(output._socket)
        client.sock.send(b"".join(framed(b"x") for _ in range(10)))
        for _ in range(10):
            await client.receive()
    assert sends == [50]


async def test_half_close_still_gets_every_answer() -> None:
    later = Later()
    async with serving(later) as served:
        client = await served.connect()
        await client.send(b"a", b"b")
        client.sock.shutdown(socket.SHUT_WR)
        await until(lambda: len(later.exchanges) == 2)
        await until(lambda: all(connection._closing is not None for connection in served.server))
        later.answer(1)
        later.answer(0)
        assert [await client.receive() for _ in range(2)] == [b"re:a", b"re:b"]
        assert await client.sees_the_end()
        assert served.closed("by_peer") == 1


async def test_answers_that_the_turn_of_another_connection_brings_leave_in_one_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sends: list[object] = []
    flush = Output.flush

    def noted(output: Output) -> bool:
        sends.append(output)
        return flush(output)

    monkeypatch.setattr(Output, "flush", noted)
    waiting = Later()

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        if bytes(frame) == b"now":
            for index in range(len(waiting.exchanges)):
                waiting.answer(index)
            exchange.respond([b"done"])
        else:
            waiting(exchange, frame)

    async with serving(dispatch) as served:
        producer, follower = await served.connect(), await served.connect()
        await producer.send(b"a", b"b", b"c")
        await until(lambda: len(waiting.exchanges) == 3)
        sends.clear()
        await follower.send(b"now")
        assert await follower.receive() == b"done"
        assert [await producer.receive() for _ in range(3)] == [b"re:a", b"re:b", b"re:c"]
        assert len(sends) == 2, "one for each connection"
        await producer.send(b"d")
        await until(lambda: len(waiting.exchanges) == 4)
        waiting.answer(3)
        assert await producer.receive() == b"re:d"


@pytest.mark.parametrize("size", [1_000, 1_000_000])
@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_disk_that_is_waited_for_stops_its_own_reader_only(
    tmp_path: Path, size: int, *, is_gone: bool
) -> None:
    (tmp_path / "log").write_bytes(content := os.urandom(size))
    file = FileOnASlowDisk(tmp_path / "log")

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.respond([FileRegion(file, 0, size)] if bytes(frame) == b"fetch" else [bytes(frame)])

    threads = ThreadBackground(asyncio.get_running_loop(), 2)
    async with serving(dispatch, background=threads) as served:
        reader, other = await served.connect(), await served.connect()
        await reader.send(b"fetch", b"behind it")
        for number in range(5):
            await other.send(b"%d" % number)
            assert await other.receive() == b"%d" % number
        if is_gone:
            reader.reset()
            await until(lambda: len(served.server) == 1)
            file.may_read.set()
            await threads.close()
        else:
            file.may_read.set()
            assert [await reader.receive(), await reader.receive()] == [content, b"behind it"]
        await other.send(b"still")
        assert await other.receive() == b"still"
    await threads.close()
    file.close()
