"""Known faults that show only when a broker keeps much: it walked all of it in one turn of the loop.

Each has a broker of its own, whose longest turn is measured in processor time (`turns`): what it keeps does
not count as memory of the broker under the fuzzer, and a busy machine causes no complaint.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from barnabas.core.errors import NONE, RequestTimedOut
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.fuzz.connection import Connection
from tests.fuzz.fault import ANSWER_S_MAX, Fault, ask, beside, read
from tests.fuzz.turns import Turns
from tests.fuzz.world import World, make_topics
from tests.support import hostile
from tests.support.ports import free_port

TURN_S_MAX = 0.1
TOGETHER = 60
LISTED_GROUPS = 40_000
SHOWN_GROUPS = 10_000
WIDE = "fuzz-wide"
PARTITIONS = 2_600
SMALL = tuple(f"fuzz-small-{number}" for number in range(10))
MEMBERS = 250
"""Their subscriptions and the partitions are more than are assigned within a request."""


def assignment_of_many_partitions(world: World) -> Iterator[str]:
    """One member has all of a topic, until another one gets half; the subscriptions of the group differ."""
    with beside(world, {}, is_measured=True) as other:
        make_topics(other, SMALL)
        _make_wide_topic(other)
        turns = Turns(other.turns_path)
        turns.forget()
        with other.connect("alice", ANSWER_S_MAX) as alice:
            _join(alice, "first", [WIDE, *SMALL])
            for number in range(MEMBERS):
                _join(alice, f"member-{number}", list(SMALL))
            _join(alice, "second", [WIDE])
            halves = _wide_partitions(alice)
        if [len(each) for each in halves] != [PARTITIONS // 2] * 2 or halves[0] & halves[1]:
            yield f"of {PARTITIONS} partitions, the two members get {[len(each) for each in halves]}"
        yield from _complaints(turns, f"the assignment of {PARTITIONS} partitions")


def _make_wide_topic(world: World) -> None:
    """Returns when each partition has a leader: on a busy disk that takes longer than a request may wait."""
    wide = CreatableTopic(name=WIDE, num_partitions=PARTITIONS, replication_factor=1)
    creating = CreateTopicsRequest(topics=[wide], timeout_ms=30_000)
    asking = MetadataRequest(topics=[MetadataRequestTopic(name=WIDE)])
    with world.connect("admin", ANSWER_S_MAX) as admin:
        (created,) = ask(admin, ApiKey.CREATE_TOPICS, 4, creating).topics
        if created.error_code not in (NONE, RequestTimedOut.code):
            raise RuntimeError(f"a topic of {PARTITIONS} partitions is not created: {created}")
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while time.monotonic() < deadline_s:
            (topic,) = ask(admin, ApiKey.METADATA, 5, asking).topics
            if sum(partition.leader_id >= 0 for partition in topic.partitions) == PARTITIONS:
                return
            time.sleep(0.5)
    raise TimeoutError(f"{WIDE} has partitions without a leader")


def _join(connection: Connection, member_id: str, topics: list[str]) -> None:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="group-wide", member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics, topic_partitions=[],
    )  # fmt: skip
    code = ask(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, beat).error_code
    if code:
        raise RuntimeError(f"{member_id} cannot join: {code}")


def _wide_partitions(connection: Connection) -> list[set[int]]:
    """Partitions of the wide topic by member, once the target of the group belongs to its epoch."""
    request = ConsumerGroupDescribeRequest(group_ids=["group-wide"])
    deadline_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline_s:
        (group,) = ask(connection, ApiKey.CONSUMER_GROUP_DESCRIBE, 0, request).groups
        if group.assignment_epoch == group.group_epoch > 0:
            return [
                set(topic.partitions)
                for member in group.members
                for topic in member.target_assignment.topic_partitions
                if topic.topic_name == WIDE
            ]
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
