"""Cost of TLS for the broker: rates, latencies and its own CPU of produce and fetch, plain and encrypted.

Starts one broker with both listeners, so that nothing but the listener differs, and alternates between them;
with `--kafka` one of Apache Kafka's, too, in the same rounds, and the ratio. The load is bytes made before,
sent by this process, whose own TLS is in the rates, and records of librdkafka. Answers are looked at, so that
no errors are measured instead of records. On a machine that does other things only CPU times compare.

    python bench/tls.py --kafka                           # ten minutes
    python bench/tls.py --kafka --seconds 0.5 --rounds 1  # whether it runs at all
    PYTHONPATH=there python bench/tls.py --kafka         # a compiled wheel that is unpacked there
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from io import IOBase
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import trustme
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
if not os.environ.get("PYTHONPATH"):
    sys.path.insert(1, str(Path(__file__).parents[1] / "src"))

from bench import works
from bench.request_path import create_topic, fetch_frame, produce_frame
from bench.warm_memory import warm_memory
from tests.peers.kafka import KafkaBroker
from tests.support.broker import BarnabasBroker, Broker
from tests.support.ports import free_port

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.protocol.schema.headers import read_response_header

SIZE = struct.Struct(">i")
PRODUCE_VERSION = 9
RECORDS, RECORD_BYTES = 200_000, 1_000
"""Records that librdkafka writes and reads back."""
LOAD_BYTES_MAX = 300_000_000
"""Of one load, so that what is written has pages that were used before."""


def connect(port: int, context: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else context.wrap_socket(sock, server_hostname="127.0.0.1")


class Load(NamedTuple):
    requests: int
    moved_bytes: int
    took_s: float
    median_s: float
    """Of the answers, from one to the next."""


class Work(NamedTuple):
    name: str
    frame: bytes
    depth: int
    """Requests in flight."""
    answer_bytes_min: int
    """Smallest size of an answer with records."""
    writes_much: bool = False


def load(sock: socket.socket, work: Work, seconds: float) -> Load:
    """Until the time is over, or as much has been moved as a disk is to be asked for."""
    stream = sock.makefile("rb", buffering=1 << 20)
    requests = moved = 0
    begun = last = time.perf_counter()
    gaps: list[float] = []
    for _ in range(work.depth):
        sock.sendall(work.frame)
    while True:
        moved += len(work.frame) + read_answer(stream, work)
        requests += 1
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
        if (took := now - begun) > seconds or moved > LOAD_BYTES_MAX:
            break
        sock.sendall(work.frame)
    for _ in range(work.depth - 1):
        read_answer(stream, work)
    stream.close()
    return Load(requests, moved, took, statistics.median(gaps))


def read_answer(stream: IOBase, work: Work) -> int:
    (size,) = SIZE.unpack(stream.read(SIZE.size))
    stream.read(size)
    assert size >= work.answer_bytes_min, f"{work.name} was answered with {size} bytes only"
    return int(size)


def produce_once(port: int) -> None:
    """So that there is something to fetch, and it is seen that produce requests are taken."""
    with connect(port, None) as sock, sock.makefile("rb") as stream:
        for records in (1, 1_000, 1_000):
            sock.sendall(produce_frame(records, 100 if records == 1 else 1_000))
            (size,) = SIZE.unpack(stream.read(SIZE.size))
            frame = memoryview(stream.read(size))
            _, position = read_response_header(frame, ApiKey.PRODUCE, PRODUCE_VERSION)
            answer: Any = ProduceResponse.decoder(PRODUCE_VERSION)(frame, position)[0]
            (topic,) = answer.responses
            (partition,) = topic.partition_responses
            assert partition.error_code == 0, f"produce was answered with error {partition.error_code}"


def handshakes(port: int, context: ssl.SSLContext, seconds: float) -> int:
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        connect(port, context).close()
        count += 1
    return count


class Subject(NamedTuple):
    broker: Broker
    listeners: dict[str, tuple[int, ssl.SSLContext | None]]

    def client_settings(self, listener: str, authority: Path) -> dict[str, object]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.listeners[listener][0]}",
            "security.protocol": listener,
            "ssl.ca.location": str(authority),
        }


def barnabas(scratch: Path, key_store: Path, context: ssl.SSLContext) -> Subject:
    plain, encrypted = free_port(), free_port()
    broker = BarnabasBroker(
        scratch / "barnabas",
        port=plain,
        settings={"ssl.keystore.location": key_store},
        arguments=["--listener", f"SSL://127.0.0.1:{encrypted}"],
    )
    return Subject(broker, {"PLAINTEXT": (plain, None), "SSL": (encrypted, context)})


def apache_kafka(scratch: Path, key_store: Path, context: ssl.SSLContext) -> Subject:
    plain, encrypted, controller = free_port(), free_port(), free_port()
    clients = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"
    settings = {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key_store,
    }
    broker = KafkaBroker(scratch / "kafka", port=plain, voters={1: controller}, settings=settings)
    return Subject(broker, {"PLAINTEXT": (plain, None), "SSL": (encrypted, context)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka, too (needs Java and Maven)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        scratch = Path(text)
        authority = trustme.CA()
        key_store = scratch / "broker.pem"
        issued = authority.issue_cert("127.0.0.1")
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        in_pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # all that Java reads
        key_store.write_bytes(in_pkcs8 + b"".join(each.bytes() for each in issued.cert_chain_pems))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authority.configure_trust(context)
        trusted = scratch / "authority.pem"
        authority.cert_pem.write_to_path(str(trusted))
        makers = (barnabas, apache_kafka) if arguments.kafka else (barnabas,)
        subjects = [make(scratch, key_store, context) for make in makers]
        for each in subjects:
            each.broker.start()
            stack.callback(each.broker.kill)
            create_topic(each.broker.port)
            produce_once(each.broker.port)
        samples = Samples()
        for turn in range(arguments.rounds + 1):
            counts = turn > 0  # the first is to warm up
            measure_loads(subjects, arguments.seconds, samples if counts else Samples())
            measure_librdkafka(subjects, trusted, turn, samples if counts else Samples())
            measure_handshakes(subjects, arguments.seconds, samples if counts else Samples())
        samples.show([each.broker.name for each in subjects])


class Samples:
    """Measurements, by row and figure."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: str, figure: str, subject: str, value: float) -> None:
        self._found[row, figure][subject].append(value)

    def show(self, subjects: Sequence[str]) -> None:
        print(f"{'':36} {'':16} " + " ".join(f"{name:>26}" for name in subjects))
        for (row, figure), by_subject in self._found.items():
            medians = [statistics.median(by_subject[name]) for name in subjects]
            shown = " ".join(
                f"{median:10.1f} ({min(by_subject[name]):.1f}-{max(by_subject[name]):.1f})".rjust(26)
                for name, median in zip(subjects, medians, strict=True)
            )
            ratio = f"   ratio {medians[0] / medians[1]:.2f}" if len(medians) > 1 and medians[1] else ""
            print(f"{row:36} {figure:16} {shown}{ratio}")


def measure_loads(subjects: Sequence[Subject], seconds: float, samples: Samples) -> None:
    loads = (
        Work("produce 1 x 100 B", produce_frame(1, 100), 1, 0),
        Work("produce 1000 x 1 KB", produce_frame(1000, 1_000), 2, 0, writes_much=True),
        Work("fetch 1 x 100 B", fetch_frame(0, 150), 1, 150),
        Work("fetch 1 MB", fetch_frame(0, 1 << 20), 2, 1 << 20),
    )
    for work in loads:
        for broker, listeners in subjects:
            for listener, (port, context) in listeners.items():
                written_bytes = LOAD_BYTES_MAX if work.writes_much else 0
                with warm_memory(written_bytes), connect(port, context) as sock:
                    before = cpu_s(broker)
                    found = load(sock, work, seconds)
                    spent_s = cpu_s(broker) - before
                row = f"{work.name}, {listener}"
                samples.add(row, "MB/s", broker.name, found.moved_bytes / found.took_s / 1e6)
                samples.add(row, "p50 us", broker.name, found.median_s * 1e6)
                samples.add(row, "CPU us/request", broker.name, spent_s * 1e6 / found.requests)
                samples.add(row, "CPU s/GB", broker.name, spent_s * 1e9 / found.moved_bytes)


def measure_librdkafka(subjects: Sequence[Subject], authority: Path, turn: int, samples: Samples) -> None:
    moved = RECORDS * RECORD_BYTES
    for subject in subjects:
        broker = subject.broker
        for listener in subject.listeners:
            settings = subject.client_settings(listener, authority)
            topic = f"librdkafka-{listener}-{turn}"
            works.create_topic(broker, topic)
            with works.spending(broker, written_bytes=moved) as producing:
                works.pour(Producer({**settings, "acks": "all"}), topic, bytes(RECORD_BYTES), RECORDS)
            consumer = Consumer({**settings, "group.id": "bench", "enable.auto.commit": False})
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            with works.spending(broker) as consuming:
                read = 0
                while read < RECORDS:
                    messages = consumer.consume(10_000, timeout=works.TIMEOUT_S)
                    assert messages, f"silence after {read} records"
                    read += sum(message.error() is None for message in messages)
            consumer.close()
            for work, spent in (("produce", producing), ("consume", consuming)):
                row = f"{work} 1 KB, librdkafka, {listener}"
                samples.add(row, "MB/s", broker.name, moved / spent.wall_s / 1e6)
                samples.add(row, "CPU s/GB", broker.name, spent.cpu_s * 1e9 / moved)


def measure_handshakes(subjects: Sequence[Subject], seconds: float, samples: Samples) -> None:
    for broker, listeners in subjects:
        port, context = listeners["SSL"]
        assert context is not None
        before = cpu_s(broker)
        count = handshakes(port, context, seconds)
        samples.add("handshakes", "a second", broker.name, count / seconds)
        samples.add("handshakes", "CPU us", broker.name, (cpu_s(broker) - before) * 1e6 / count)


def cpu_s(broker: Broker) -> float:
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
