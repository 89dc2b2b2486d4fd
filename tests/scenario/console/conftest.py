"""A broker with some records, and its console, for the tests of one module."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.consumer import Consumer
from barnabas.client.sync.producer import Producer
from barnabas.core.ids import TopicPartition
from tests.support.broker import BarnabasBroker, running
from tests.support.console import RunningConsole, running_console

ORDERS = 300
HOSTILE = (
    b"<script>document.title='owned'</script>",
    b"<img src=x onerror=\"document.title='owned'\">",
    b'"><svg onload=alert(1)>',
    b"<hx-partial hx-target='body'><b>owned</b></hx-partial>",
    b"\x00\x01\x1b[2J\x7f",
    b"\xff\xfe\xfd broken",
    "safe \u202egpj.exe".encode(),
    b"[" * 100_000,
    b'{"half of a pair": "\\ud800"}',
    b"</textarea></pre></table><form action=//elsewhere.test>",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasBroker]:
    broker = BarnabasBroker(
        tmp_path_factory.mktemp("console") / "data", settings={"message.max.bytes": 12_000_000}
    )
    with running(broker):
        fill(broker.bootstrap)
        yield broker


def fill(bootstrap: str) -> None:
    # A request that is sent again finds the topics of the first one.
    patient = {"request.timeout.ms": 120_000, "default.api.timeout.ms": 240_000}
    with Admin({"bootstrap.servers": bootstrap, **patient}) as admin:
        admin.create_topics(
            [
                NewTopic("orders", 3, configs={"retention.ms": "86400000", "segment.bytes": "4096"}),
                NewTopic("hostile", 1, configs={"max.message.bytes": "12000000"}),
                NewTopic("short-lived", 1),
                *(NewTopic(f"service-{number:02d}", 1) for number in range(60)),
            ]
        )
    with Producer(bootstrap, max_request_size=12_000_000) as producer:
        for number in range(ORDERS):
            value = {"id": number, "amount": number / 2, "customer": f"c-{number % 7}"}
            headers = [("trace", f"{number:04x}".encode())]
            producer.send(
                "orders", json.dumps(value).encode(), key=f"c-{number % 7}".encode(), headers=headers
            )
            if number % 10 == 9:
                producer.flush()  # a batch of its own, so that the log has several segments
        for each in HOSTILE:
            producer.send(
                "hostile",
                each,
                key=each[:200],
                headers=[(each[:40].decode(errors="surrogateescape"), each[:200])],
            )
        producer.send("hostile", b"\xf0" * (10 << 20), key=b"ten megabytes")
        producer.flush()
    with Consumer(bootstrap, group="billing", topics=["orders"], auto_offset_reset="earliest") as consumer:
        read = 0
        while read < 100:
            read += len(consumer.poll(timeout_ms=1_000, max_records=100 - read))


@pytest.fixture(scope="module")
def console(broker: BarnabasBroker) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap) as console:
        yield console


@pytest.fixture(scope="module")
def admin(broker: BarnabasBroker) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def partitions(count: int = 3) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in range(count)]
