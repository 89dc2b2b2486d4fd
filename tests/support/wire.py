"""The wire by hand: frames built with `struct`, read back with `struct`.

Nothing here uses Barnabas' own codecs, so a mistake in them cannot hide. It also lets a test
send what no client would. Only old, non-flexible versions are built here; a test that needs a
newer one builds its body itself.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Self

import crc32c

from barnabas.core.regions import FileRegion
from tests.support.waiting import ATTEMPT_S, PATIENCE_MS, PATIENCE_S

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
LATEST, EARLIEST = -1, -2
PRODUCE_VERSION, METADATA_VERSION, LIST_OFFSETS_VERSION = 7, 1, 1


def string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def nullable_bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def array(items: Sequence[bytes] | None) -> bytes:
    return struct.pack(">i", -1) if items is None else struct.pack(">i", len(items)) + b"".join(items)


def varint(value: int) -> bytes:
    """Zigzag, as records use it."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None = "wire") -> bytes:
    return struct.pack(">hhi", api_key, version, correlation_id) + string(client_id)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def record(value: bytes | None, *, key: bytes | None = None, offset_delta: int = 0) -> bytes:
    def field(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\x00" + varint(0) + varint(offset_delta) + field(key) + field(value) + varint(0)
    return varint(len(body)) + body


def content(records: bytes | bytearray | memoryview | FileRegion | None) -> bytes:
    """The records of a decoded message, which are always in memory."""
    assert isinstance(records, bytes | bytearray | memoryview)
    return bytes(records)


def batch(
    values: Sequence[bytes | None] = (b"value",),
    *,
    records: bytes | None = None,
    magic: int = 2,
    attributes: int = 0,
    count: int | None = None,
    last_offset_delta: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    crc: int | None = None,
    timestamp_ms: int = 1_700_000_000_000,
) -> bytes:
    """A v2 batch; every field that validation looks at can be set wrong."""
    if records is None:
        records = b"".join(record(value, offset_delta=i) for i, value in enumerate(values))
    count = len(values) if count is None else count
    last = count - 1 if last_offset_delta is None else last_offset_delta
    covered = struct.pack(">hiqqqhii", attributes, last, timestamp_ms, timestamp_ms, producer_id,
                          producer_epoch, base_sequence, count) + records  # fmt: skip
    checksum = crc32c.crc32c(covered) if crc is None else crc
    rest = struct.pack(">ibI", -1, magic, checksum) + covered
    return struct.pack(">qi", 0, len(rest)) + rest


def message_set_entry(value: bytes, *, magic: int = 1) -> bytes:
    """One message of the old formats (magic 0 and 1), with a correct CRC-32."""
    import zlib

    stamp = struct.pack(">q", 1_700_000_000_000) if magic == 1 else b""
    body = struct.pack(">bb", magic, 0) + stamp + nullable_bytes(None) + nullable_bytes(value)
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def produce_body(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1,
                 timeout_ms: int = PATIENCE_MS) -> bytes:  # fmt: skip
    """Produce v3 to v8."""
    partitions = array([struct.pack(">i", partition) + nullable_bytes(records)])
    return string(None) + struct.pack(">hi", acks, timeout_ms) + array([string(topic) + partitions])


def fetch_body(topic: str, offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 500) -> bytes:
    """Fetch v4 of partition 0."""
    partition = struct.pack(">iqi", 0, offset, max_bytes)
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, 0)
    return head + array([string(topic) + array([partition])])


def list_offsets_body(topic: str, timestamp_ms: int, *, partition: int = 0) -> bytes:
    """ListOffsets v1; -1 is the latest, -2 the earliest."""
    return struct.pack(">i", -1) + array(
        [string(topic) + array([struct.pack(">iq", partition, timestamp_ms)])]
    )


def create_topics_body(
    topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None, timeout_ms: int = PATIENCE_MS
) -> bytes:
    """CreateTopics v2."""
    rows = array([string(key) + string(value) for key, value in (configs or {}).items()])
    row = string(topic) + struct.pack(">ih", partitions, 1) + array([]) + rows
    return array([row]) + struct.pack(">ib", timeout_ms, 0)


class Reader:
    """Takes an answer apart, front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(">" + layout, self._data, self._at)
        self._at += struct.calcsize(">" + layout)
        return values

    def number(self, layout: str) -> int:
        return self.unpack(layout)[0]

    def string(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self.take(length).decode()

    def byte_string(self) -> bytes | None:
        length = self.number("i")
        return None if length < 0 else self.take(length)

    def take(self, length: int) -> bytes:
        taken = self._data[self._at : self._at + length]
        assert len(taken) == length, "the answer ends early"
        self._at += length
        return taken

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]


NOT_LED_YET = frozenset({3, 5, 6})
"""Unknown, without a leader, or led by another: what a partition is for a moment after a start."""


class WireConnection:
    """A plain blocking connection; `EOFError` when the peer closed it."""

    def __init__(self, host: str, port: int, *, timeout_s: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection((host, port), timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: bytes) -> int:
        self._correlation_id += 1
        self.send_raw(framed(request_header(api_key, version, self._correlation_id) + body))
        return self._correlation_id

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> tuple[int, Reader]:
        """Correlation id and body (response header v0)."""
        size = struct.unpack(">i", self._exactly(4))[0]
        reader = Reader(self._exactly(size))
        return reader.number("i"), reader

    def ask(self, api_key: int, version: int, body: bytes) -> Reader:
        sent = self.send(api_key, version, body)
        correlation_id, reader = self.receive()
        assert correlation_id == sent, f"answer {correlation_id} to request {sent}"
        return reader

    def is_closed_by_peer(self) -> bool:
        """Reads until the peer closes or the timeout passes; what it still sends is dropped."""
        try:
            while self.socket.recv(65_536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise EOFError("closed by the peer")
            data += chunk
        return bytes(data)

    def produce(self, topic: str, records: bytes | None, *, acks: int = -1) -> tuple[int, int]:
        """Error code and base offset of a one-partition produce."""
        reader = self.ask(PRODUCE, PRODUCE_VERSION, produce_body(topic, records, acks=acks))
        assert reader.number("i") == 1, "one topic"
        assert reader.string() == topic
        assert reader.unpack("ii") == (1, 0), "one partition, number 0"
        error, base_offset = reader.unpack("hq")
        return error, base_offset

    def list_offset(self, topic: str, timestamp_ms: int, partition: int = 0) -> tuple[int, int]:
        """Error code and offset."""
        body = list_offsets_body(topic, timestamp_ms, partition=partition)
        reader = self.ask(LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
        assert reader.number("i") == 1, "one topic"
        assert reader.string() == topic
        _, _, error, _, offset = reader.unpack("iihqq")
        return error, offset

    def latest_offset(self, topic: str, *, patience_s: float = 0.0) -> int:
        """With patience a broker may take this long after its start to lead the partition."""
        deadline = time.monotonic() + patience_s
        while True:
            error, offset = self.list_offset(topic, LATEST)
            if error not in NOT_LED_YET or time.monotonic() > deadline:
                assert error == 0, f"error {error} from ListOffsets"
                return offset
            time.sleep(0.05)

    def new_producer_id(self) -> int:
        """InitProducerId v0 with no transactional id."""
        reader = self.ask(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
        _, error, producer_id, _ = reader.unpack("ihqh")
        assert error == 0, f"error {error} from InitProducerId"
        return producer_id

    def create_topic(self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None) -> int:
        """The error code."""
        body = create_topics_body(topic, partitions=partitions, configs=configs)
        reader = self.ask(CREATE_TOPICS, 2, body)
        reader.number("i")
        assert reader.number("i") == 1, "one topic"
        assert reader.string() == topic
        return reader.number("h")


def broker_count(host: str, port: int) -> int:
    """Number of brokers in a metadata response; names no topic, so creates none."""
    with WireConnection(host, port, timeout_s=ATTEMPT_S) as connection:
        return connection.ask(METADATA, METADATA_VERSION, array([])).number("i")
