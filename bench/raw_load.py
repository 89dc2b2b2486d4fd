"""A load generator that costs as little as possible: prebuilt frames, a chosen depth.

It knows nothing of Kafka: it sends the same frame again and again to any port that answers
each size-prefixed frame with one, keeps `depth` of them in flight on each connection, and
records how long each answer took. Works against this project's network layer, a whole
broker, Apache Kafka, or the bare loops in `bare_loop.py`.

While it looks at answers the server may have nothing to do, so an answer costs one step over
it: requests that left by one send, and were answered by what one receive brought, are
measured together.

    python bench/raw_load.py --port 9092 --frame-bytes 100 --depth 32 --seconds 3
"""

from __future__ import annotations

import argparse
import selectors
import socket
import struct
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

HISTOGRAM_STEP_RATIO = 1.05
HISTOGRAM_LEAST_US = 1.0
BURST_BYTES_MAX = 256 * 1024
SIZE = struct.Struct(">i")


class LatencyHistogram:
    """Logarithmic buckets of five percent: exact enough for percentiles, constant in size."""

    def __init__(self) -> None:
        self._bounds_us = [HISTOGRAM_LEAST_US]
        while self._bounds_us[-1] < 60e6:
            self._bounds_us.append(self._bounds_us[-1] * HISTOGRAM_STEP_RATIO)
        self._counts = [0] * (len(self._bounds_us) + 1)
        self.count = 0
        self.max_us = 0.0

    def observe(self, us: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds_us, us)] += times
        self.count += times
        self.max_us = max(self.max_us, us)

    def percentile_us(self, percent: float) -> float:
        rank = self.count * percent / 100.0
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if seen >= rank and count:
                return self._bounds_us[min(index, len(self._bounds_us) - 1)]
        return self.max_us


@dataclass
class LoadResult:
    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    seconds: float = 0.0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    def __str__(self) -> str:
        return (
            f"{self.requests} requests, {self.requests_per_s:,.0f}/s, "
            f"{self.sent_bytes / self.seconds / 1e6:,.1f} MB/s out, "
            f"{self.received_bytes / self.seconds / 1e6:,.1f} MB/s in, "
            f"p50 {self.latency.percentile_us(50):,.0f} µs, p99 {self.latency.percentile_us(99):,.0f} µs, "
            f"max {self.latency.max_us:,.0f} µs"
        )


class _Peer:
    """One connection that keeps `depth` requests in flight."""

    def __init__(self, address: tuple[str, int], frame: bytes, depth: int, result: LoadResult) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.setblocking(False)
        self._frame_bytes = len(frame)
        self._burst = frame * min(depth, max(1, BURST_BYTES_MAX // len(frame)))
        self._depth = depth
        self._result = result
        self._sent: deque[tuple[float, int]] = deque()
        """When, and how many, in the order of sending; of the first the unanswered rest."""
        self._in_flight = 0
        self._unsent = 0
        self._offset = 0
        self._input = bytearray(1 << 20)
        self._size_begun = b""
        """Received part of the size of an answer, if it was cut there."""
        self._body_left = 0

    @property
    def wants_to_write(self) -> bool:
        return self._unsent > 0

    @property
    def idle(self) -> bool:
        return not self._in_flight and not self._unsent

    def fill(self) -> None:
        """Top up to the depth; the clock of a request starts when its bytes are offered."""
        self._unsent = self._depth - self._in_flight
        self.write()

    def write(self) -> None:
        while self._unsent:
            whole = len(self._burst) // self._frame_bytes
            end = min(self._unsent, whole) * self._frame_bytes
            begun = time.perf_counter()
            try:
                sent = self.sock.send(memoryview(self._burst)[self._offset : end])
            except BlockingIOError:
                return
            self._result.sent_bytes += sent
            done, self._offset = divmod(self._offset + sent, self._frame_bytes)
            if done:
                self._sent.append((begun, done))
                self._in_flight += done
                self._unsent -= done

    def read(self) -> None:
        try:
            count = self.sock.recv_into(self._input)
        except BlockingIOError:
            return
        if count == 0:
            raise EOFError("the server closed the connection")
        self._result.received_bytes += count
        answers = self._count_answers(count)
        self._result.requests += answers
        self._in_flight -= answers
        now = time.perf_counter()
        while answers:
            begun, together = self._sent.popleft()
            answered = min(answers, together)
            if answered < together:
                self._sent.appendleft((begun, together - answered))
            self._result.latency.observe((now - begun) * 1e6, answered)
            answers -= answered

    def _count_answers(self, count: int) -> int:
        """Number of answers that end in the bytes just received; an answer, and its size too, may come in
        pieces."""
        received, size_of = self._input, SIZE.unpack_from
        position = self._body_left
        if self._size_begun:
            missing = SIZE.size - len(self._size_begun)
            self._size_begun += received[: min(missing, count)]
            if count < missing:
                return 0
            position = missing + size_of(self._size_begun)[0]
            self._size_begun = b""
        answers = 1 if 0 < position <= count else 0
        last_size_at = count - SIZE.size
        while position <= last_size_at:
            position += SIZE.size + size_of(received, position)[0]
            if position <= count:
                answers += 1
        if position < count:
            self._size_begun = bytes(received[position:count])
        self._body_left = max(0, position - count)
        return answers


def run_load(
    port: int,
    frame: bytes,
    *,
    host: str = "127.0.0.1",
    depth: int = 1,
    connections: int = 1,
    seconds: float = 2.0,
    requests: int | None = None,
) -> LoadResult:
    """`frame` includes its size. Ends after `seconds`, or after about `requests` answers if given."""
    result = LoadResult()
    selector = selectors.DefaultSelector()
    peers = [_Peer((host, port), frame, depth, result) for _ in range(connections)]
    begun = time.perf_counter()
    for peer in peers:
        selector.register(peer.sock, selectors.EVENT_READ, peer)
        peer.fill()
        _watch(selector, peer)
    stopping = False
    while not (stopping and all(peer.idle for peer in peers)):
        for key, events in selector.select(5.0):
            peer = key.data
            if events & selectors.EVENT_WRITE:
                peer.write()
            if events & selectors.EVENT_READ:
                peer.read()
            if not stopping:
                peer.fill()
            _watch(selector, peer)
        spent = time.perf_counter() - begun
        stopping = stopping or (result.requests >= requests if requests is not None else spent >= seconds)
    result.seconds = time.perf_counter() - begun
    for peer in peers:
        selector.unregister(peer.sock)
        peer.sock.close()
    selector.close()
    return result


def _watch(selector: selectors.BaseSelector, peer: _Peer) -> None:
    wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.wants_to_write else 0)
    if selector.get_key(peer.sock).events != wanted:
        selector.modify(peer.sock, wanted, peer)


def opaque_frame(size: int) -> bytes:
    """A frame of `size` bytes in all, for servers that do not look inside."""
    return struct.pack(">i", size - 4) + bytes(size - 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--frame-bytes", type=int, default=100)
    parser.add_argument("--frame-file", help="a file with one whole frame, its size first")
    parser.add_argument("--depth", type=int, default=1)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    if options.frame_file:
        from pathlib import Path

        frame = Path(options.frame_file).read_bytes()
    else:
        frame = opaque_frame(options.frame_bytes)
    print(
        run_load(
            options.port,
            frame,
            host=options.host,
            depth=options.depth,
            connections=options.connections,
            seconds=options.seconds,
        )
    )


if __name__ == "__main__":
    main()
