"""Cost of groups: a heartbeat, and the loading of a million committed offsets after a restart.

    python bench/groups.py

The goals: 1,000 groups of three members (1,000 heartbeats a second) take at most 15 % of a core; a
million offsets are loaded within five seconds, and no other request waits for more than 50 ms
meanwhile.
"""

from __future__ import annotations

import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [
    str(Path(__file__).parents[1]),
    str(Path(__file__).parents[1] / "src"),
    str(Path(__file__).parent),
]

import psutil
from raw_load import run_load
from request_path import frame_of
from tests.support.broker import BarnabasBroker
from tests.support.fixtures import create_topic

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import (
    api_versions,
    find_coordinator,
    heartbeat,
    join_group,
    offset_commit,
    offset_fetch,
    response_class,
    sync_group,
)
from barnabas.protocol.schema.message import Message

GROUPS = 1_000
PARTITIONS = 1_000
COORDINATOR_IS_LOADING = 14


class Client:
    """Asks in versions whose headers have no tags, and waits for each answer."""

    def __init__(self, broker: BarnabasBroker) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), 60)
        self._answers = self._socket.makefile("rb")

    def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        self._socket.sendall(frame_of(key, version, request))
        (size,) = struct.unpack(">i", self._answers.read(4))
        body = memoryview(self._answers.read(size))[4:]
        return response_class(key).decode(body, version)[0]


def measure_heartbeats(broker: BarnabasBroker) -> None:
    client = Client(broker)
    # As every client does: it is what makes the topic of the offsets.
    client.ask(ApiKey.FIND_COORDINATOR, 1, find_coordinator.FindCoordinatorRequest(key="g0"))
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = join_group.JoinGroupRequest(
        group_id="g0", session_timeout_ms=60_000, rebalance_timeout_ms=60_000, protocol_type="consumer",
        protocols=[protocol],
    )  # fmt: skip
    while (joined := client.ask(ApiKey.JOIN_GROUP, 3, request)).error_code:
        time.sleep(0.1)
    mine = sync_group.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
    client.ask(
        ApiKey.SYNC_GROUP, 2,
        sync_group.SyncGroupRequest(
            group_id="g0", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[mine]
        ),
    )  # fmt: skip
    beat = heartbeat.HeartbeatRequest(
        group_id="g0", generation_id=joined.generation_id, member_id=joined.member_id
    )
    assert client.ask(ApiKey.HEARTBEAT, 2, beat).error_code == 0
    process = psutil.Process(broker.pid)
    before = process.cpu_times()
    load = run_load(broker.port, frame_of(ApiKey.HEARTBEAT, 2, beat), depth=1, seconds=3)
    after = process.cpu_times()
    spent_s = after.user + after.system - before.user - before.system
    each_us = spent_s / load.requests * 1e6
    print(f"a heartbeat: {each_us:.0f} us of CPU; 1,000 of them a second: {each_us / 10:.1f} % of a core")


def measure_loading(broker: BarnabasBroker) -> None:
    create_topic(broker, "wide", partitions=PARTITIONS)
    client = Client(broker)
    asked = [
        offset_commit.OffsetCommitRequestPartition(partition_index=n, committed_offset=n)
        for n in range(PARTITIONS)
    ]
    topics = [offset_commit.OffsetCommitRequestTopic(name="wide", partitions=asked)]
    begun = time.perf_counter()
    for _ in range(GROUPS):
        request = offset_commit.OffsetCommitRequest(group_id="loaded", topics=topics)
        answer = client.ask(ApiKey.OFFSET_COMMIT, 5, request)
        assert not answer.topics[0].partitions[0].error_code
    print(f"{GROUPS * PARTITIONS:,} offsets committed in {time.perf_counter() - begun:.1f} s")
    broker.kill()
    begun = time.perf_counter()
    broker.start()
    ready_s = time.perf_counter() - begun
    client, other = Client(broker), Client(broker)
    wanted = offset_fetch.OffsetFetchRequestTopic(name="wide", partition_indexes=[PARTITIONS - 1])
    request = offset_fetch.OffsetFetchRequest(group_id="loaded", topics=[wanted])
    longest_ms = 0.0
    while True:
        asked_at = time.perf_counter()
        other.ask(ApiKey.API_VERSIONS, 0, api_versions.ApiVersionsRequest())
        longest_ms = max(longest_ms, (time.perf_counter() - asked_at) * 1e3)
        answer = client.ask(ApiKey.OFFSET_FETCH, 5, request)
        if answer.error_code != COORDINATOR_IS_LOADING:
            break
    loaded_s = time.perf_counter() - begun
    assert answer.topics[0].partitions[0].committed_offset == PARTITIONS - 1
    print(
        f"after kill -9: ready in {ready_s:.1f} s, offsets back {loaded_s - ready_s:.1f} s later, "
        f"longest wait of another request {longest_ms:.0f} ms"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        broker = BarnabasBroker(Path(scratch))
        broker.start()
        try:
            measure_heartbeats(broker)
            measure_loading(broker)
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
