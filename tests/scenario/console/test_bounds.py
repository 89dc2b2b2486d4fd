"""Bounds on the memory that viewers take: by large records, as slow readers, and as many at once."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Self
from urllib.parse import urlsplit

import psutil
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from barnabas.console.pages.messages import DOWNLOADS_MAX
from barnabas.records.compression import Codec, compress
from tests.support import wire
from tests.support.broker import BarnabasBroker
from tests.support.console import RunningConsole, running_console, words
from tests.support.waiting import PATIENCE_S, eventually

VALUE_BYTES = 8 << 20
VALUES = 12
AT_ONCE = 24
ALL_AT_ONCE_BYTES = AT_ONCE * VALUES * VALUE_BYTES
"""What they would take without a bound."""
BOUND_BYTES = 900 << 20


@pytest.fixture(scope="module")
def large(broker: BarnabasBroker) -> str:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("large", 1, configs={"max.message.bytes": "12000000"})])
    with Producer(broker.bootstrap, max_request_size=12_000_000) as producer:
        for number in range(VALUES):
            producer.send("large", b"%d" % number + b"x" * VALUE_BYTES)
            producer.flush()
    return "/topics/large/messages"


@pytest.fixture
def own_console(broker: BarnabasBroker) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap) as console:
        yield console


class Watch:
    """The most memory that a process has while it is watched."""

    def __init__(self, console: RunningConsole) -> None:
        self._process = psutil.Process(console.process.pid)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(0.02):
            self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)


def connect(console: RunningConsole, path: str) -> socket.socket:
    """A client that asks and reads nothing."""
    split = urlsplit(console.url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((split.hostname, split.port))
    sock.sendall(f"GET {path} HTTP/1.1\r\nhost: {split.netloc}\r\n\r\n".encode())
    return sock


def status_of(sock: socket.socket) -> int:
    sock.settimeout(PATIENCE_S)
    return int(sock.recv(len("HTTP/1.1 200")).split()[1])


def test_slow_readers_of_downloads_hold_little(own_console: RunningConsole, large: str) -> None:
    with Watch(own_console) as watch, own_console.client() as client:
        client.get("/topics")
        readers = [connect(own_console, f"{large}/download?start=oldest") for _ in range(AT_ONCE)]
        try:
            answers = Counter(status_of(each) for each in readers)
            assert answers == {200: DOWNLOADS_MAX, 503: AT_ONCE - DOWNLOADS_MAX}
            time.sleep(4)  # as much as they get while they read nothing
            refused = client.get(f"{large}/download")
            assert refused.status_code == 503
            assert "downloads" in refused.text
            assert client.get("/topics").status_code == 200
        finally:
            for each in readers:
                each.close()
        eventually(lambda: client.get("/topics/orders/messages/download").status_code == 200, "room again")
    assert watch.peak_bytes < BOUND_BYTES < ALL_AT_ONCE_BYTES


def test_many_pages_of_large_records_take_turns(own_console: RunningConsole, large: str) -> None:
    found: list[int] = []

    def look() -> None:
        with own_console.client() as client:
            found.append(client.get(f"{large}?start=oldest&limit=500").status_code)

    with Watch(own_console) as watch:
        viewers = [threading.Thread(target=look) for _ in range(AT_ONCE)]
        for each in viewers:
            each.start()
        for each in viewers:
            each.join()
    assert found == [200] * AT_ONCE
    assert watch.peak_bytes < BOUND_BYTES < ALL_AT_ONCE_BYTES


HEADERS = 20_000_000
"""Empty ones. A batch of some kilobytes inflates to them; a decoder takes gigabytes for them."""


def many_headers(headers: int) -> bytes:
    """A record, as a client could send it that this library is not."""
    body = b"\x00" + wire.varint(0) * 2 + wire.varint(-1) * 2 + wire.varint(headers) + b"\x00\x01" * headers
    records = wire.varint(len(body)) + body
    return wire.batch(records=compress(Codec.ZSTD, records), attributes=Codec.ZSTD, count=1)


def test_records_of_very_many_headers_hold_little(
    own_console: RunningConsole, broker: BarnabasBroker
) -> None:
    topic = "headers"
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1)])
    with Watch(own_console) as watch, own_console.client() as client, own_console.client() as viewer:
        with (
            viewer.stream("GET", f"/topics/{topic}/messages/live") as tail,
            wire.WireConnection(broker.host, broker.port) as producer,
        ):
            lines = tail.iter_lines()
            assert any("live" in line for line in lines)
            assert producer.produce(topic, many_headers(HEADERS))[0] == 0
            for _ in range(6):  # of each, the headers are decoded
                assert producer.produce(topic, many_headers(100_000))[0] == 0
            assert producer.produce(topic, wire.batch([b"the last one"]))[0] == 0
            assert any("the last one" in line for line in lines)
        page = client.get(f"/topics/{topic}/messages?limit=500")
        assert page.status_code == 200
        assert "the last one" in words(page)
        assert client.get(f"/topics/{topic}/records/0/0").status_code == 422
        assert "100,000" in words(client.get(f"/topics/{topic}/records/0/1"))
        found = client.get(f"/api/topics/{topic}/messages?start=oldest").json()
        assert 0 < len(found["rows"]) < 10
        assert client.get(f"/topics/{topic}/messages/download?start=oldest").status_code == 200
    assert watch.peak_bytes < BOUND_BYTES
