"""Output: bytes arrive in order, however few the socket takes at a time."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Sequence
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.regions import FileRegion
from barnabas.core.reporting.metrics import Counter
from barnabas.network.transport.exchange import Part
from barnabas.network.transport.output import JOINED_BYTES_MAX, Output, RegionCutShort

OPEN: list[Reluctant | MemoryFile] = []
"""By the numbers that they give as descriptors."""


class Reluctant(socket.socket):
    """A socket that takes so many bytes at a time; 0 means that it would block."""

    def __init__(self, takes: Sequence[int]) -> None:
        self._takes = cycle(takes)
        self.arrived = bytearray()

    def _take(self, data: bytes) -> int:
        take = next(self._takes)
        if take == 0:
            raise BlockingIOError
        self.arrived += data[:take]
        return min(take, len(data))

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]  # as it is called
        return self._take(data)

    def sendmsg(self, parts: Iterable[bytes], *_: object) -> int:  # type: ignore[override]  # as it is called
        return self._take(b"".join(parts))

    def fileno(self) -> int:
        return numbered(self)

    def take_of(self, file: MemoryFile, position: int, count: int) -> int:
        return self._take(file.read_at(position, count))


class Counted(Reluctant):
    calls = 0

    def _take(self, data: bytes) -> int:
        self.calls += 1
        return super()._take(data)


class MemoryFile:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def fileno(self) -> int:
        return numbered(self)

    def read_at(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]

    def read_now(self, position: int, length: int) -> bytes:
        return self.read_at(position, length)


def numbered(opened: Reluctant | MemoryFile) -> int:
    OPEN.append(opened)
    return len(OPEN) - 1


def send_from_memory(out: int, source: int, position: int, count: int) -> int:
    sock, file = OPEN[out], OPEN[source]
    assert isinstance(sock, Reluctant)
    assert isinstance(file, MemoryFile)
    return sock.take_of(file, position, count)


@pytest.fixture(autouse=True)
def nothing_is_open() -> None:
    OPEN.clear()


CONTENT = os.urandom(200_000)
PARTS = st.one_of(
    st.binary(max_size=50),
    st.binary(max_size=50).map(bytearray),
    st.integers(0, 100_000).map(bytes),
    st.tuples(st.integers(0, 100_000), st.integers(0, 100_000)).map(
        lambda where: FileRegion(MemoryFile(CONTENT), *where)
    ),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(PARTS, max_size=6), max_size=6),
    st.lists(st.integers(0, 70_000), min_size=1, max_size=6).filter(lambda takes: sum(takes) > 2_000),
    st.booleans(),
)
def test_any_reluctance_delivers_the_same_bytes(
    answers: list[list[Part]], takes: list[int], flush_each: bool
) -> None:
    sock = Reluctant(takes)
    sent = Counter()
    output = Output(sock, sent, send_from_memory)
    expected = b""
    for parts in answers:
        body = b"".join(part.read() if isinstance(part, FileRegion) else part for part in parts)
        expected += struct.pack(">i", len(body)) + body
        output.put(parts)
        if flush_each:
            output.flush()
    while not output.flush():
        pass
    assert bytes(sock.arrived) == expected
    assert (output.memory_bytes, output.empty, sent.value) == (0, True, len(expected))


def test_only_memory_counts() -> None:
    output = Output(Reluctant([0]), Counter(), send_from_memory)
    output.put([bytes(10), FileRegion(MemoryFile(CONTENT), 0, 100_000)])
    assert output.flush() is False
    assert output.memory_bytes == 14
    assert not output.congested
    output.put([bytes(2 << 20)])
    assert output.congested
    output.discard()
    assert output.empty
    assert not output.congested


def test_a_turn_sends_its_share_and_no_more() -> None:
    sock = Reluctant([1 << 30])
    output = Output(sock, Counter(), send_from_memory)
    output.put([bytes(1 << 20)] * 8)
    for _ in range(8):
        output.put([bytes(JOINED_BYTES_MAX * 10)])
    file = MemoryFile(bytes(8 << 20))
    output.put([FileRegion(file, 0, 8 << 20)])
    turns = 1
    while not output.flush():
        turns += 1
    assert turns > 3


@pytest.mark.parametrize("size", [3, JOINED_BYTES_MAX])
def test_a_region_beyond_the_end_of_its_file_is_noticed(size: int) -> None:
    output = Output(Reluctant([1 << 30]), Counter(), send_from_memory)
    output.put([FileRegion(MemoryFile(bytes(size)), 0, size + 1)])
    with pytest.raises(RegionCutShort):
        output.flush()


@pytest.mark.parametrize(("size", "sends"), [(1_000, 1), (JOINED_BYTES_MAX, 3)])
def test_a_small_piece_of_a_file_leaves_with_the_rest_of_its_frame(size: int, sends: int) -> None:
    sock = Counted([1 << 30])
    output = Output(sock, Counter(), send_from_memory)
    output.put([b"before", FileRegion(MemoryFile(CONTENT), 0, size), b"after"])
    assert output.flush()
    assert sock.calls == sends


class ColdFile(MemoryFile):
    """File of which nothing is cached before it is read."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.in_memory: set[int] = set()

    def read_at(self, position: int, length: int) -> bytes:
        self.in_memory.update(range(position, position + length))
        return super().read_at(position, length)

    def read_now(self, position: int, length: int) -> bytes | None:  # type: ignore[override]
        wanted = set(range(position, min(position + length, len(self.content))))
        return self.content[position : position + length] if wanted <= self.in_memory else None


@pytest.mark.parametrize("length", [100, 150_000])
def test_what_is_on_the_disk_alone_is_brought_in_first(length: int) -> None:
    sock = Reluctant([1_000_000])
    output = Output(sock, Counter(), send_from_memory)
    file = ColdFile(CONTENT)
    output.put([b"head", FileRegion(file, 1_000, length), b"tail"])
    assert not output.flush()
    away = output.away
    assert away is not None
    assert not sock.arrived.endswith(b"tail"), "nobody waited for the disk"
    away.bring_in()
    assert output.flush()
    assert output.away is None
    assert sock.arrived == struct.pack(">i", length + 8) + b"head" + CONTENT[1_000 : 1_000 + length] + b"tail"


def test_a_system_that_never_has_it_at_hand_is_served() -> None:
    sock = Reluctant([1_000_000])
    output = Output(sock, Counter(), send_from_memory)

    class NeverAtHand(MemoryFile):
        def read_now(self, position: int, length: int) -> None:  # type: ignore[override]
            return None

    output.put([FileRegion(NeverAtHand(CONTENT), 0, 150_000), FileRegion(NeverAtHand(CONTENT), 0, 150_000)])
    flushes = 0
    while not output.flush():
        flushes += 1
        assert flushes < 10
    assert sock.arrived[4:] == 2 * CONTENT[:150_000]


def test_reading_in_reads_on_for_the_next_answer() -> None:
    file = ColdFile(CONTENT)
    FileRegion(file, 0, 10_000).bring_in(0, 10_000)
    assert file.read_now(10_000, 1) is not None
