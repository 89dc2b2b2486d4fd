"""Bytes cut anywhere come out as the frames that went in, and memory follows what was received."""

import socket
import struct
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.network.transport.receive_buffer import (
    GROWTH,
    LARGE_BYTES,
    MAPPED_BYTES_MIN,
    Loan,
    LoopBuffers,
    ReceiveBuffer,
)


class Pieces(socket.socket):
    """Socket that delivers a stream in given pieces."""

    def __init__(self, stream: bytes, cuts: Iterable[int]) -> None:
        self._stream = memoryview(stream)
        self._cuts = list(cuts)
        self.delivered = 0

    def recv_into(self, buffer: memoryview, count: int = 0, flags: int = 0) -> int:  # type: ignore[override]  # as it is called
        if self.delivered == len(self._stream):
            return 0
        cut = self._cuts.pop(0) if self._cuts else len(self._stream)
        if cut == 0:
            raise BlockingIOError
        room = count or len(buffer)
        some = self._stream[self.delivered : self.delivered + min(room, cut)]
        buffer[: len(some)] = some
        self.delivered += len(some)
        return len(some)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def read_all(
    buffers: LoopBuffers,
    sock: Pieces,
    *,
    frames_per_turn: int = 1_000,
    watch: Callable[[ReceiveBuffer], None] = lambda received: None,
) -> list[bytes]:
    received = ReceiveBuffer(buffers)
    frames: list[bytes] = []
    while True:
        try:
            count = received.receive(sock)
        except BlockingIOError:
            continue
        if count == 0:
            received.release()
            return frames
        more = True
        while more:
            more = take_turn(received, frames, frames_per_turn)
            watch(received)


def take_turn(received: ReceiveBuffer, frames: list[bytes], frames_per_turn: int) -> bool:
    position, last, taken = received.start, 0, 0
    while received.end - position >= 4:
        total = 4 + struct.unpack_from(">i", received.view, position)[0]
        if position + total > received.end:
            break
        if taken == frames_per_turn:
            received.settle(position, last)
            return True
        frames.append(bytes(received.view[position + 4 : position + total]))
        position, last, taken = position + total, total, taken + 1
    received.settle(position, last)
    return False


SIZES = st.one_of(st.integers(0, 40), st.integers(LARGE_BYTES - 5, LARGE_BYTES + 5), st.integers(0, 700_000))
CUTS = st.one_of(st.integers(0, 9), st.integers(1, 300_000))


@settings(max_examples=150, deadline=None)
@given(st.lists(SIZES, max_size=8), st.lists(CUTS, max_size=40), st.integers(1, 3))
def test_any_cut_gives_the_same_frames(sizes: list[int], cuts: list[int], frames_per_turn: int) -> None:
    payloads = [bytes([number % 256]) * size for number, size in enumerate(sizes, start=1)]
    buffers = LoopBuffers()
    for _ in range(2):  # the second time with what the first left in the pool
        sock = Pieces(b"".join(map(framed, payloads)), cuts)
        assert read_all(buffers, sock, frames_per_turn=frames_per_turn) == payloads


@pytest.mark.parametrize("piece", [1_000, 70_000, 250_000])
def test_a_declared_length_allocates_nothing_before_its_bytes_come(piece: int) -> None:
    declared = 100 * 1024 * 1024
    sock = Pieces(struct.pack(">i", declared) + bytes(6_000_000), [piece] * 10_000)
    buffers = LoopBuffers()

    def watch(received: ReceiveBuffer) -> None:
        assert len(received.view) <= max(GROWTH * sock.delivered, LARGE_BYTES) + len(buffers.chunk)

    read_all(buffers, sock, watch=watch)


def test_nothing_is_kept_in_the_shared_chunk_between_turns() -> None:
    buffers = LoopBuffers()
    one, two = ReceiveBuffer(buffers), ReceiveBuffer(buffers)
    one.receive(Pieces(framed(b"first")[:6], []))
    one.settle(0, 0)
    two.receive(Pieces(framed(b"second"), []))
    two.settle(10, 10)
    one.receive(Pieces(framed(b"first")[6:], []))
    assert bytes(one.view[one.start : one.end]) == framed(b"first")


def test_the_rest_of_a_large_frame_is_received_to_its_place() -> None:
    buffers = LoopBuffers()
    sock = Pieces(framed(bytes(1_000_000)), [200_000] * 10)
    received = ReceiveBuffer(buffers)
    received.receive(sock)
    received.settle(0, 0)
    place = received.view
    while sock.delivered < 1_000_004:
        received.receive(sock)
    assert received.view is place


def test_large_buffers_are_reused_and_an_expected_large_frame_starts_in_one() -> None:
    buffers = LoopBuffers()
    payload = bytes(500_000)
    seen = []
    sock = Pieces(framed(payload) * 3, [])
    frames = read_all(buffers, sock, watch=lambda received: seen.append(len(received.view)))
    assert frames == [payload] * 3
    received = ReceiveBuffer(buffers)
    received._expected = 500_004
    received.receive(Pieces(framed(payload), []))
    assert received.view is not buffers.chunk
    assert received.end == 500_004, "one receive, nothing to copy"
    received.settle(500_004, 500_004)
    assert received.view is buffers.chunk


def test_a_failed_receive_changes_nothing() -> None:
    buffers = LoopBuffers()
    received = ReceiveBuffer(buffers)
    received.receive(Pieces(framed(b"whole")[:7], []))
    received.settle(0, 0)
    with pytest.raises(BlockingIOError):
        received.receive(Pieces(b"x", [0]))
    received.receive(Pieces(framed(b"whole")[7:], []))
    assert bytes(received.view[received.start : received.end]) == framed(b"whole")


def test_the_pool_keeps_a_bounded_number_of_bytes() -> None:
    buffers = LoopBuffers()
    for buffer in [buffers.take(8_000_000) for _ in range(10)]:
        buffers.give_back(buffer)
    assert buffers._free_bytes <= 16 * 1024 * 1024
    assert sum(map(len, buffers._free)) == buffers._free_bytes


@pytest.mark.parametrize("size", [40, 300_000, 3_000_000])
def test_a_kept_frame_outlives_its_turn(size: int) -> None:
    buffers = LoopBuffers()
    received = ReceiveBuffer(buffers)
    sock = Pieces(framed(b"k" * size), [])
    while sock.delivered < size + 4:
        received.receive(sock)
        if sock.delivered < size + 4:
            received.settle(received.start, 0)
    kept = received.keep(received.view[received.start + 4 : received.end])
    received.settle(received.end, size + 4)
    for _ in range(3):
        assert read_all(buffers, Pieces(framed(b"x" * size), [])) == [b"x" * size]
        assert read_all(buffers, Pieces(framed(b"y" * 10), [])) == [b"y" * 10]
    assert bytes(kept) == b"k" * size


def test_what_follows_a_kept_frame_does_not_touch_it() -> None:
    buffers = LoopBuffers()
    received = ReceiveBuffer(buffers)
    first, second = framed(b"k" * 2_000_000), framed(b"x" * 9_000_000)
    sock = Pieces(first + second, [])
    received._expected = 6_000_000
    buffers.give_back(buffers.take(6_000_000))
    received.receive(sock)
    kept = received.keep(received.view[4 : len(first)])
    received.settle(len(first), len(first))
    while sock.delivered < len(first) + len(second):
        received.receive(sock)
        received.settle(received.start, 0)
    assert bytes(received.view[received.start : received.end]) == second
    assert bytes(kept) == first[4:]


def test_a_very_large_buffer_grows_where_it_is() -> None:
    """Copying the received bytes would delay all other connections."""
    payload = bytes(range(256)) * 100_000
    sock = Pieces(framed(payload), [250_000] * 200)
    buffers = LoopBuffers()
    places = set()

    def watch(received: ReceiveBuffer) -> None:
        if len(received.view) > MAPPED_BYTES_MIN:
            places.add(id(received.view.obj))

    assert read_all(buffers, sock, watch=watch) == [payload]
    assert len(places) == 1


def lent_frame(buffers: LoopBuffers, received: ReceiveBuffer, payload: bytes) -> tuple[memoryview, Loan]:
    """A large frame, of which the turn is over."""
    received._expected = len(payload) + 4
    if (large := buffers.reuse(received._expected)) is None:
        large = buffers.take(received._expected)
    buffers.give_back(large)
    received.receive(Pieces(framed(payload), []))
    frame, loan = received.view[received.start + 4 : received.end], received.lend()
    received.settle(received.end, len(payload) + 4)
    assert loan is not None
    return frame, loan


def test_a_lent_frame_stays_until_it_is_given_back() -> None:
    buffers = LoopBuffers()
    received = ReceiveBuffer(buffers)
    first, loan = lent_frame(buffers, received, b"1" * 500_000)
    second, other = lent_frame(buffers, received, b"2" * 500_000)
    assert first.obj is not second.obj
    assert (bytes(first[:1]), bytes(second[:1])) == (b"1", b"2")
    loan.give_back()
    third, _ = lent_frame(buffers, received, b"3" * 500_000)
    assert third.obj is first.obj, "what is given back is used again"
    assert bytes(second[:1]) == b"2"
    other.give_back()


def test_a_buffer_with_two_lent_frames_is_free_with_the_second() -> None:
    buffers = LoopBuffers()
    received = ReceiveBuffer(buffers)
    received._expected = 400_008
    buffers.give_back(buffers.take(400_008))
    received.receive(Pieces(framed(b"1" * 200_000) + framed(b"2" * 200_000), []))
    loans = [received.lend(), received.lend()]
    received.settle(received.end, 200_004)
    assert buffers.reuse(400_008) is None
    for loan in loans:
        assert loan is not None
        assert buffers.reuse(400_008) is None
        loan.give_back()
    assert buffers.reuse(400_008) is not None


def test_a_frame_in_the_chunk_cannot_be_lent() -> None:
    received = ReceiveBuffer(LoopBuffers())
    received.receive(Pieces(framed(b"small"), []))
    assert received.lend() is None
