"""Frames in, answers out, in the order of the requests."""

import asyncio
import struct
from collections.abc import Callable

import pytest
from tests.scenario.network.harness import Later, echo, framed, serving, turns, until

from barnabas.network.busy_poll import CLOSE_BY_MIN, BusyPoll
from barnabas.network.transport.exchange import Exchange


async def test_a_request_is_answered() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send(b"hello")
        assert await client.receive() == b"re:hello"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        payloads = [b"%d" % number for number in range(1_000)]
        await client.send(*payloads)
        assert [await client.receive() for _ in payloads] == [b"re:" + payload for payload in payloads]


async def test_a_frame_that_comes_byte_by_byte_is_whole() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        for byte in framed(b"slow but honest") + framed(b"twice"):
            before = served.server.counters.received.value
            await client.send_raw(bytes([byte]))
            await served.receives_more_than(before)
        assert await client.receive() == b"re:slow but honest"
        assert await client.receive() == b"re:twice"


@pytest.mark.parametrize("size", [1, 4_000, 65_536, 262_140, 262_144, 300_000, 1_048_700, 9_000_001])
async def test_frames_of_every_size_arrive_unharmed_among_small_ones(size: int) -> None:
    async with serving(echo) as served:
        client = await served.connect()
        large = [bytes([number]) * size for number in range(3)]
        payloads = [b"small", large[0], large[1], b"small", b"small", large[2], b"last"]
        sending = asyncio.ensure_future(client.send(*payloads))
        for payload in payloads:
            answer = await client.receive()
            assert answer == b"re:" + payload, f"{len(answer)} bytes for {len(payload)}"
        await sending


async def test_answers_leave_in_the_order_of_the_requests_whatever_the_order_of_answering() -> None:
    later = Later()
    async with serving(later) as served:
        client = await served.connect()
        await client.send(b"a", b"b", b"c", b"d")
        await until(lambda: len(later.exchanges) == 4)
        for index in (2, 0, 3, 1):
            later.answer(index)
        assert [await client.receive() for _ in "abcd"] == [b"re:a", b"re:b", b"re:c", b"re:d"]


async def test_a_request_without_an_answer_takes_its_place_in_the_order() -> None:
    later = Later()
    async with serving(later) as served:
        client = await served.connect()
        await client.send(b"a", b"b", b"c")
        await until(lambda: len(later.exchanges) == 3)
        later.answer(2)
        later.exchanges[1].respond_nothing()
        later.answer(0)
        assert [await client.receive() for _ in "ac"] == [b"re:a", b"re:c"]


async def test_reading_stops_at_the_limit_of_requests_in_flight_and_goes_on_after_answers() -> None:
    later = Later()
    async with serving(later, requests_in_flight_max=3) as served:
        client = await served.connect()
        await client.send(*(b"%d" % number for number in range(10)))
        await until(lambda: len(later.exchanges) == 3)
        await turns()
        assert len(later.exchanges) == 3
        later.answer(1)
        await turns()
        assert len(later.exchanges) == 3, "the first is still unanswered, so both await their turn to leave"
        later.answer(0)
        await until(lambda: len(later.exchanges) == 5)
        await client.send(b"10")
        for index in range(2, 11):
            await later.has(index)
            later.answer(index)
        assert [await client.receive() for _ in range(11)] == [b"re:%d" % number for number in range(11)]


async def test_a_held_connection_gets_no_further_request_until_the_answer() -> None:
    seen: list[tuple[Exchange, bytes]] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        seen.append((exchange, bytes(frame)))
        if bytes(frame) == b"create":
            exchange.hold()
        else:
            exchange.respond([bytes(frame)])

    async with serving(dispatch) as served:
        client, other = await served.connect(), await served.connect()
        await client.send(b"first", b"create", b"second")
        assert await client.receive() == b"first"
        await client.send(b"third")
        await other.send(b"unhindered")
        assert await other.receive() == b"unhindered"
        await turns()
        assert [request for _, request in seen] == [b"first", b"create", b"unhindered"]
        seen[1][0].respond([b"created"])
        assert [await client.receive() for _ in range(3)] == [b"created", b"second", b"third"]


async def test_a_throttled_connection_gets_its_answer_now_and_its_next_request_later() -> None:
    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.connection.throttle(250)
        exchange.respond([bytes(frame)])

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"a", b"b")
        assert await client.receive() == b"a"
        await turns()
        assert served.server.counters.sent.value == 5
        served.clock.advance(ms=250)
        served.scheduler.run_due()
        assert await client.receive() == b"b"


async def test_no_connection_starves_another() -> None:
    """One floods; the other's request is served after a bounded number of the flood's."""
    order: list[bytes] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        order.append(bytes(frame[:1]))
        exchange.respond([b"x"])

    async with serving(dispatch) as served:
        flood, other = await served.connect(), await served.connect()
        await turns()
        data = b"".join(framed(b"f" * 8) for _ in range(2_000))
        flood.sock.send(data)
        other.sock.send(framed(b"o"))
        assert await other.receive() == b"x"
        assert order.index(b"o") < 200
        for _ in range(2_000):
            await flood.receive()


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
async def test_a_frame_of_forbidden_size_closes_the_connection_and_no_other(size: int) -> None:
    async with serving(echo, socket_request_max_bytes=100) as served:
        client, other = await served.connect(), await served.connect()
        await client.send(b"fine")
        assert await client.receive() == b"re:fine"
        await client.send_raw(struct.pack(">i", size))
        assert await client.sees_the_end()
        assert served.closed("bad_frame") == 1
        await other.send(b"x" * 100)
        assert await other.receive() == b"re:" + b"x" * 100


async def test_the_answers_before_a_forbidden_frame_still_leave() -> None:
    async with serving(echo) as served:
        client = await served.connect()
        await client.send_raw(framed(b"good") + b"\xff\xff\xff\xff")
        assert await client.receive() == b"re:good"
        assert await client.sees_the_end()


async def test_a_fault_of_dispatch_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        if bytes(frame) == b"bad":
            raise ValueError("a bug")
        exchange.respond([bytes(frame)])

    async with serving(dispatch) as served:
        client, other = await served.connect(), await served.connect()
        await client.send(b"good", b"bad", b"never")
        assert await client.receive() == b"good"
        assert await client.sees_the_end()
        assert served.closed("own_fault") == 1
        await other.send(b"fine")
        assert await other.receive() == b"fine"
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_a_handler_can_close_the_connection_instead_of_answering() -> None:
    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        if bytes(frame) == b"bad":
            exchange.close("acks=0 failed")
        else:
            exchange.respond([bytes(frame)])

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"good", b"bad", b"never")
        assert await client.receive() == b"good"
        assert await client.sees_the_end()
        assert served.closed("refused") == 1


async def test_a_handler_can_answer_and_close() -> None:
    requests: list[bytes] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        requests.append(bytes(frame))
        exchange.respond_and_close([b"wrong password"], "authentication failed")

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"login", b"never", b"never")
        assert await client.receive() == b"wrong password"
        assert await client.sees_the_end()
        assert requests == [b"login"]


async def test_requests_that_were_never_read_do_not_turn_the_close_into_a_reset() -> None:
    held: list[Exchange] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        exchange.hold()
        held.append(exchange)

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"login")
        await until(lambda: len(held) == 1)
        await client.send(b"never read")
        await turns()
        held[0].respond_and_close([b"no"], "authentication failed")
        assert await client.receive() == b"no"
        assert await asyncio.get_running_loop().sock_recv(client.sock, 1) == b"", "an end, not a reset"


async def test_answering_a_connection_that_is_gone_does_nothing() -> None:
    later = Later()
    async with serving(later, half_closed_ms_max=5) as served:
        client = await served.connect()
        await client.send(b"a", b"b")
        await until(lambda: len(later.exchanges) == 2)
        client.reset()
        await until(lambda: served.closed("by_peer") == 1)
        later.answer(1)
        later.exchanges[0].close("too late")
        assert later.exchanges[0].connection.closed


async def test_frames_are_writable_and_their_neighbours_are_out_of_reach() -> None:
    lengths: list[tuple[int, bool]] = []

    def dispatch(exchange: Exchange, frame: memoryview) -> None:
        lengths.append((len(frame), frame.readonly))
        frame[0] = 0
        exchange.respond([b"ok"])

    async with serving(dispatch) as served:
        client = await served.connect()
        await client.send(b"abc", b"de", b"f" * 200_000)
        for _ in range(3):
            assert await client.receive() == b"ok"
    assert lengths == [(3, False), (2, False), (200_000, False)]


async def test_the_loop_looks_for_more_where_requests_follow_each_other() -> None:
    """A part of a request does not count as one (`network.busy_poll`)."""
    async with serving(echo) as served:
        looks: list[Callable[[], None]] = []
        served.server.busy_poll = BusyPoll(looks.append, served.clock, patience_ms=0.1)
        client = await served.connect()
        for _ in range(CLOSE_BY_MIN):
            await client.send(b"request")
            await client.receive()
        for byte in framed(b"unfinished")[:-1]:
            before = served.server.counters.received.value
            await client.send_raw(bytes([byte]))
            await served.receives_more_than(before)
        assert not looks
        await client.send_raw(b"d")
        assert await client.receive() == b"re:unfinished"
        assert len(looks) == 1
