"""Cost of one request for the broker: user and system CPU per produce and per fetch, by depth.

Starts a broker of this working tree, prebuilds the frames, and reads the broker's own CPU times
around each row. The goals: at most 45 us of user CPU for a one-record produce, 60 us for a
fetch answer.

    python bench/request_path.py --seconds 3

The same of a compiled wheel that is unpacked somewhere: `PYTHONPATH=there python bench/request_path.py`.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import tempfile
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
if "PYTHONPATH" not in os.environ:
    sys.path.insert(1, str(Path(__file__).parents[1] / "src"))

from bench.raw_load import run_load
from tests.support.broker import BarnabasBroker, barnabas_broker

from barnabas.core.compiled import CODE
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import create_topics, fetch, produce
from barnabas.protocol.schema.headers import encode_request
from barnabas.protocol.schema.message import Message
from barnabas.records.builder import build_batch

TOPIC = "bench"


def frame_of(key: ApiKey, version: int, message: Message) -> bytes:
    body = b"".join(bytes(part) for part in encode_request(key, version, 1, "bench", message))  # type: ignore[arg-type]
    return struct.pack(">i", len(body)) + body


def produce_frame(records: int, value_bytes: int, acks: int = -1, topic: str = TOPIC) -> bytes:
    batch = build_batch([(None, b"v" * value_bytes, (), 1_700_000_000_000)] * records)
    data = produce.TopicProduceData(
        name=topic, partition_data=[produce.PartitionProduceData(index=0, records=bytes(batch))]
    )
    request = produce.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return frame_of(ApiKey.PRODUCE, 9, request)


def fetch_frame(offset: int, max_bytes: int, topic: str = TOPIC) -> bytes:
    ask = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic=topic, partitions=[ask])],
    )
    return frame_of(ApiKey.FETCH, 12, request)


def create_topic(port: int, name: str = TOPIC) -> None:
    """Without retention: the records have a timestamp of their own, and are older than any."""
    kept = create_topics.CreatableTopicConfig(name="retention.ms", value="-1")
    topic = create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[kept])
    frame = frame_of(
        ApiKey.CREATE_TOPICS, 5, create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    )
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(frame)
        sock.recv(4096)


def row(name: str, broker: BarnabasBroker, frame: bytes, *, depth: int, seconds: float) -> None:
    process = psutil.Process(broker.pid)
    run_load(broker.port, frame, depth=depth, seconds=0.3)
    before = process.cpu_times()
    result = run_load(broker.port, frame, depth=depth, seconds=seconds)
    after = process.cpu_times()
    user_us = (after.user - before.user) * 1e6 / result.requests
    system_us = (after.system - before.system) * 1e6 / result.requests
    print(
        f"{name:34} depth {depth:3}  {result.requests / result.seconds:9,.0f} req/s  "
        f"user {user_us:7.1f} us  sys {system_us:7.1f} us  "
        f"p50 {result.latency.percentile_us(50):8.0f} us  p99 {result.latency.percentile_us(99):8.0f} us"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    print(CODE)
    with tempfile.TemporaryDirectory() as scratch, barnabas_broker(Path(scratch)) as broker:
        create_topic(broker.port)
        one = produce_frame(1, 100)
        for depth in (1, 32):
            row("produce 1 x 100 B, acks=all", broker, one, depth=depth, seconds=seconds)
        row("produce 1000 x 1 KB, acks=all", broker, produce_frame(1000, 1_000), depth=5, seconds=seconds)
        for depth in (1, 32):
            row("fetch 1 x 100 B from the start", broker, fetch_frame(0, 150), depth=depth, seconds=seconds)
        row("fetch 1 MB from the start", broker, fetch_frame(0, 1 << 20), depth=2, seconds=seconds)


if __name__ == "__main__":
    main()
