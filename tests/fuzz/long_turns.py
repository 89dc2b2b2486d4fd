"""Known faults that show only when a broker keeps much: it walked all of it in one turn of the loop.

Each has a broker of its own, whose longest turn is measured in processor time (`turns`): what it keeps does
not count as memory of the broker under the fuzzer, and a busy machine causes no complaint.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.fuzz.connection import Connection
from tests.fuzz.fault import ANSWER_S_MAX, Fault, ask, beside, read
from tests.fuzz.turns import Turns
from tests.fuzz.world import World
from tests.support import hostile, wire
from tests.support.ports import free_port

TURN_S_MAX = 0.1
TOGETHER = 60
LISTED_GROUPS = 40_000
SHOWN_GROUPS = 10_000
WIDE = "fuzz-wide"
PARTITIONS = 9_000


def assignment_of_many_partitions(world: World) -> Iterator[str]:
    """One member has all of them, until another one gets half; their subscriptions differ."""
    with beside(world, {}, is_measured=True) as other:
        with other.connect("admin", ANSWER_S_MAX) as admin:
            body = wire.create_topics_body(WIDE, partitions=PARTITIONS, timeout_ms=int(ANSWER_S_MAX * 1_000))
            admin.ask_raw(wire.CREATE_TOPICS, 2, body)
        turns = Turns(other.turns_path)
        turns.forget()
        with other.connect("alice", ANSWER_S_MAX) as alice:
            targets = _targets_of_two(alice)
        if any(abs(len(target) - PARTITIONS // 2) > 1 for target in targets.values()) or len(targets) != 2:
            yield f"of {PARTITIONS} partitions, two members get {[len(each) for each in targets.values()]}"
        yield from _complaints(turns, f"the assignment of {PARTITIONS} partitions")


def _targets_of_two(connection: Connection) -> dict[str, set[tuple[str, int]]]:
    """Partitions of each member, once the target of the group belongs to its epoch."""
    for member, topics in (("first", [WIDE, "fuzz-a"]), ("second", [WIDE])):
        beat = ConsumerGroupHeartbeatRequest(
            group_id="group-wide", member_id=f"{member:.<22}", member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=topics, topic_partitions=[],
        )  # fmt: skip
        code = ask(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, beat).error_code
        if code:
            raise RuntimeError(f"the {member} member cannot join: {code}")
    request = ConsumerGroupDescribeRequest(group_ids=["group-wide"])
    deadline_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline_s:
        (group,) = ask(connection, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, request).groups
        if group.assignment_epoch == group.group_epoch > 0:
            return {
                member.member_id: {
                    (topic.topic_name, number)
                    for topic in member.target_assignment.topic_partitions
                    for number in topic.partitions
                }
                for member in group.members
            }
        time.sleep(0.05)
    raise TimeoutError("the target of the group stays older than the group")


def list_of_many_groups(world: World) -> Iterator[str]:
    """For a user who sees all of them, and for one who sees none."""
    with beside(world, {}, is_measured=True) as other:
        _commit(other, LISTED_GROUPS)
        turns = Turns(other.turns_path)
        for user, expected in (("alice", LISTED_GROUPS), ("mallory", 0)):
            with other.connect(user, ANSWER_S_MAX) as connection:
                turns.forget()
                listed = len(ask(connection, ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups)
            if listed != expected:
                yield f"{user} sees {listed} of {LISTED_GROUPS} groups"
            yield from _complaints(turns, f"a list of {LISTED_GROUPS} groups for {user}")


def page_of_many_metrics(world: World) -> Iterator[str]:
    """Three for each committed offset."""
    port = free_port()
    with beside(world, {}, ("--metrics", f"127.0.0.1:{port}"), is_measured=True) as other:
        _commit(other, SHOWN_GROUPS)
        turns = Turns(other.turns_path)
        turns.forget()
        page = _page(port)
        if b"kafka_consumergroup_lag{" not in page:
            yield f"the metrics page has no lag of a group: {page[:200]!r}"
        yield from _complaints(turns, f"a metrics page of {SHOWN_GROUPS} groups")


def _page(port: int) -> bytes:
    received = bytearray()
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as scraper:
        scraper.sendall(f"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        while some := scraper.recv(1 << 20):
            received += some
    return bytes(received)


def _commit(world: World, groups: int) -> None:
    """Groups without members, each with committed offsets."""
    rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in (0, 1)]
    topics = [OffsetCommitRequestTopic(name="fuzz-a", partitions=rows)]
    with world.connect("alice", ANSWER_S_MAX) as alice:
        for first in range(0, groups, TOGETHER):
            numbers = range(first, min(first + TOGETHER, groups))
            for number in numbers:
                request = OffsetCommitRequest(
                    group_id=f"group-{number:06}", generation_id_or_member_epoch=-1, topics=topics
                )
                alice.send(hostile.frame_of(ApiKey.OFFSET_COMMIT, 5, request))
            answers: list[bytes] = []
            while len(answers) < len(numbers):
                answers += alice.answers(ANSWER_S_MAX)
            (topic,) = read(ApiKey.OFFSET_COMMIT, 5, answers[-1]).topics
            if any(row.error_code for row in topic.partitions):
                raise RuntimeError(f"an offset is not committed: {topic}")


def _complaints(turns: Turns, name: str) -> Iterator[str]:
    if turns.longest_s > TURN_S_MAX:
        yield f"slow: {name} takes a turn of {turns.longest_s * 1_000:.0f} ms"


ALL = (
    Fault("the assignment of many partitions", assignment_of_many_partitions),
    Fault("a list of many groups", list_of_many_groups),
    Fault("a page of many metrics", page_of_many_metrics),
)
