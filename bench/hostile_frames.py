"""Cost of one frame for other clients: the longest wait of a small produce on another connection.

For every API, in its oldest and newest version (`--all-versions`: in all), one array of the request is filled
with as many elements as a request may have, each array of the message in its turn, with names of nothing, of
topics that exist and of topics that do not. Further frames: answers that are long though their request is
short, records that must be read one by one, more elements than are allowed, huge strings.

    python bench/hostile_frames.py                  # the worst frames, as a table
    python bench/hostile_frames.py --only Metadata  # one API
    python bench/hostile_frames.py --markdown       # the table of RESULTS.md

A figure is the least over the rounds of the longest wait: a machine that is busy with something else
adds to the longest wait of a round, and never takes from it.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.hostile_records import record_frames
from tests.support.broker import barnabas_broker

from barnabas.core.ids import Uuid
from barnabas.core.limits import REQUEST_ELEMENTS_MAX
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import create_topics, describe_configs, metadata, produce, request_class
from barnabas.protocol.schema.declarations import Kind
from barnabas.protocol.schema.headers import encode_request
from barnabas.protocol.schema.message import Message
from barnabas.records.builder import build_batch

SMALL = "bench"
WIDE = "wide"
WIDE_PARTITIONS = 1_000
TOPICS = 1_000
TOPIC_RESOURCE = 2
SPARE_ELEMENTS = 10
"""For the arrays above the one that is filled, and for tagged fields."""
QUIET_S = 0.05
ANSWER_S_MAX = 120.0
NAMES = ("empty", "unknown", "known")
NEVER_SENT = frozenset({ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_TOPICS})
"""With names that exist they would do what they say; their elements are those of shapes of their own."""

Path_ = tuple[str, ...]


class Frame(NamedTuple):
    api: str
    version: int
    shape: str
    data: bytes


def framed(key: int, version: int, message: Message) -> bytes:
    body = b"".join(bytes(part) for part in encode_request(key, version, 1, "bench", message))  # type: ignore[arg-type]
    return struct.pack(">i", len(body)) + body


# --- messages of many elements ---


def array_paths(cls: type[Message], version: int, above: Path_ = ()) -> Iterator[Path_]:
    for field in cls.__schema__.fields:
        if version not in field.versions:
            continue
        inner = field.kind.element or field.kind
        if field.kind.element is not None:
            yield (*above, field.name)
        if inner.message is not None:
            yield from array_paths(inner.message, version, (*above, field.name))


def filled(cls: type[Message], version: int, path: Path_, count: int, names: str, serial: int = 0) -> Message:
    """A message with `count` elements in the array at `path` and one in those above it."""
    message = cls()
    for field in cls.__schema__.fields:
        if version not in field.versions:
            continue
        if path and field.name == path[0]:
            number = count if len(path) == 1 else 1
            element = field.kind.element
            if element is None:
                assert field.kind.message is not None
                value: Any = filled(field.kind.message, version, path[1:], count, names, serial)
            else:
                value = [
                    filled(element.message, version, path[1:], count, names, each)
                    if element.message is not None
                    else scalar(field.name, element, names, each)
                    for each in range(number)
                ]
            setattr(message, field.name, value)
        elif field.kind.code or field.kind.name == "string":
            if field.name in PLAIN and (PLAIN[field.name] is not None or version in field.nullable):
                setattr(message, field.name, PLAIN[field.name])
            elif serial or path or names != "empty":
                chosen = scalar(field.name, field.kind, names, serial)
                if chosen is not None:
                    setattr(message, field.name, chosen)
    return message


PLAIN: dict[str, Any] = {
    "acks": 1, "timeout_ms": 1_000, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20,
    "session_epoch": -1,
    "validate_only": True, "allow_auto_topic_creation": False, "partition_max_bytes": 1 << 20,
    "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
    "include_synonyms": True, "include_documentation": True, "resource_type": TOPIC_RESOURCE,
    "transactional_id": None, "replica_id": -1, "num_partitions": 1, "replication_factor": 1,
    "group_instance_id": None, "member_id": "", "rack_id": "",
}  # fmt: skip


def scalar(name: str, kind: Kind, names: str, serial: int) -> Any:
    if kind.name == "string":
        if names == "empty":
            return ""
        if "group" in name:
            return f"group-{serial}"
        return (
            f"{'topic' if names == 'known' else 'unknown'}-{serial % TOPICS if names == 'known' else serial}"
        )
    if kind.code in ("i", "h") and ("partition" in name or name == "index"):
        return serial % 0x7FFF
    if kind.name == "uuid":
        return Uuid(serial.to_bytes(16, "big"))
    return b"" if kind.name == "bytes" else None if not kind.code else kind.name != "bool" and 0


def generic_frames(*, all_versions: bool, only: str = "") -> Iterator[Frame]:
    for api in APIS.for_clients():
        if only not in api.key.name.replace("_", "").lower():
            continue
        cls = request_class(api.key)
        versions = api.versions if all_versions else sorted({api.versions[0], api.versions[-1]})
        for version in versions:
            for path in array_paths(cls, version):
                for names in NAMES if api.key not in NEVER_SENT else NAMES[:2]:
                    message = filled(cls, version, path, REQUEST_ELEMENTS_MAX - SPARE_ELEMENTS, names)
                    if api.key == ApiKey.CREATE_TOPICS and not path[1:]:
                        message.timeout_ms = 0  # type: ignore[attr-defined]
                    shape = f"{'.'.join(path)}, {names}"
                    yield Frame(api.key.name, version, shape, framed(api.key, version, message))


# --- shapes of their own ---


def special_frames() -> Iterator[Frame]:
    many = 2_000_000
    yield Frame(
        "METADATA", 1, "2,000,000 names", framed_raw(3, 1, struct.pack(">i", many) + b"\x00\x01a" * many)
    )
    tags = b"\x80\x89\x7a" + b"\x07\x00" * many
    yield Frame("METADATA", 12, "2,000,000 tags in the header", framed_raw(3, 12, tags))
    yield Frame("API_VERSIONS", 3, "2,000,000 tags", framed_raw(18, 3, b"\x00\x01\x01" + tags))
    name = b"\x80\x80\x80\x0e" + b"n" * ((14 << 21) - 1)
    yield Frame(
        "METADATA", 12, "a name of 29 MB", framed_raw(3, 12, b"\x00\x02" + bytes(16) + name + bytes(3))
    )
    yield Frame("METADATA", 12, "all topics", framed(3, 12, metadata.MetadataRequest(topics=None)))
    for kind, resource in (("topic", TOPIC_RESOURCE), ("broker", 4)):
        names = [f"topic-{each}" if resource == TOPIC_RESOURCE else "1" for each in range(TOPICS)]
        asked = [
            describe_configs.DescribeConfigsResource(
                resource_type=resource, resource_name=each, configuration_keys=None
            )
            for each in names
        ]
        request = describe_configs.DescribeConfigsRequest(
            resources=asked, include_synonyms=True, include_documentation=True
        )
        yield Frame(
            "DESCRIBE_CONFIGS", 4, f"{TOPICS:,} of kind {kind}, with everything", framed(32, 4, request)
        )
    wide = create_topics.CreatableTopic(name="made", num_partitions=2_000, replication_factor=1)
    yield Frame(
        "CREATE_TOPICS", 7, "2,000 partitions",
        framed(19, 7, create_topics.CreateTopicsRequest(topics=[wide], timeout_ms=60_000)),
    )  # fmt: skip
    yield from (Frame("PRODUCE", version, shape, data) for version, shape, data in record_frames(WIDE))


def framed_raw(key: int, version: int, rest: bytes) -> bytes:
    body = struct.pack(">hhih", key, version, 1, 5) + b"bench" + rest
    return struct.pack(">i", len(body)) + body


# --- measuring ---


class Bystander(threading.Thread):
    """Sends one small produce after the other and keeps when each began and ended."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        batch = bytes(build_batch([(None, b"v" * 100, (), 1_700_000_000_000)]))
        data = produce.TopicProduceData(
            name=SMALL, partition_data=[produce.PartitionProduceData(index=0, records=batch)]
        )
        request = produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
        self._frame = framed(0, 9, request)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.longest_s = 0.0
        self.sent_at = 0.0

    def run(self) -> None:
        while True:
            self.sent_at = time.perf_counter()
            self._socket.sendall(self._frame)
            if not self._socket.recv(4096):
                return
            self.longest_s = max(self.longest_s, time.perf_counter() - self.sent_at)
            time.sleep(0.001)

    def longest(self) -> float:
        """With the request that waits just now."""
        return max(self.longest_s, time.perf_counter() - self.sent_at)


def send_and_wait(port: int, data: bytes) -> str:
    """Response of the broker, and its time."""
    begun = time.perf_counter()
    outcome, size = "answered", 0
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.settimeout(ANSWER_S_MAX)
        try:
            sock.sendall(data)
            buffer = bytearray(1 << 20)
            needed = 4
            while size < needed:
                count = sock.recv_into(buffer)
                if not count:
                    outcome = "closed"
                    break
                if size == 0:
                    needed = 4 + struct.unpack_from(">i", buffer)[0]
                size += count
        except (ConnectionError, TimeoutError) as error:
            outcome = "no answer" if isinstance(error, TimeoutError) else "closed"
    return f"{outcome} after {time.perf_counter() - begun:.2f} s" + (
        f", {size / 1e6:.1f} MB" if size > 1e6 else ""
    )


def measure(port: int, bystander: Bystander, frame: Frame, rounds: int) -> tuple[float, str]:
    least_s, outcome = float("inf"), ""
    for _ in range(rounds):
        time.sleep(QUIET_S)
        bystander.longest_s = 0.0
        outcome = send_and_wait(port, frame.data)
        time.sleep(QUIET_S)
        least_s = min(least_s, bystander.longest())
        if least_s < 0.02:
            break
    return least_s * 1e3, outcome


def make_topics(port: int) -> None:
    topics = [
        create_topics.CreatableTopic(name=f"topic-{each}", num_partitions=1, replication_factor=1)
        for each in range(TOPICS)
    ]
    topics.append(create_topics.CreatableTopic(name=SMALL, num_partitions=1, replication_factor=1))
    topics.append(
        create_topics.CreatableTopic(name=WIDE, num_partitions=WIDE_PARTITIONS, replication_factor=1)
    )
    send_and_wait(port, framed(19, 7, create_topics.CreateTopicsRequest(topics=topics, timeout_ms=120_000)))


def frames(*, all_versions: bool, only: str, wanted: Callable[[Frame], bool]) -> Iterator[Frame]:
    for frame in chain(special_frames(), generic_frames(all_versions=all_versions, only=only)):
        if wanted(frame):
            yield frame


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="a part of the API's name, such as Metadata")
    parser.add_argument("--shape", default="", help="a part of the shape's name")
    parser.add_argument("--all-versions", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--above-ms", type=float, default=0.0, help="show only what keeps others this long")
    chosen = parser.parse_args()
    only = chosen.only.replace("_", "").lower()
    rows: list[tuple[float, Frame, str]] = []
    settings = {"auto_create_topics_enable": "false"}
    with tempfile.TemporaryDirectory() as scratch, barnabas_broker(Path(scratch), **settings) as broker:
        make_topics(broker.port)
        bystander = Bystander(broker.port)
        bystander.start()
        time.sleep(1)
        for frame in frames(
            all_versions=chosen.all_versions,
            only=only,
            wanted=lambda each: only in each.api.replace("_", "").lower() and chosen.shape in each.shape,
        ):
            waited_ms, outcome = measure(broker.port, bystander, frame, chosen.rounds)
            rows.append(
                (waited_ms, frame._replace(data=frame.data[:0]), f"{len(frame.data) / 1e6:.1f} MB; {outcome}")
            )
            if not chosen.markdown and waited_ms >= chosen.above_ms:
                print(
                    f"{waited_ms:9.1f} ms  {frame.api} v{frame.version}: {frame.shape}: {rows[-1][2]}",
                    flush=True,
                )
    rows.sort(key=lambda row: -row[0])
    if chosen.markdown:
        worst: dict[str, tuple[float, Frame, str]] = {}
        for row in rows:
            worst.setdefault(row[1].api, row)
        print("| API | worst frame | waited, ms | outcome |\n|---|---|---|---|")
        for waited_ms, frame, outcome in worst.values():
            print(f"| {frame.api} | v{frame.version}: {frame.shape} | {waited_ms:,.0f} | {outcome} |")
    print(f"{len(rows)} frames, the worst kept others waiting {rows[0][0]:.0f} ms")


if __name__ == "__main__":
    main()
