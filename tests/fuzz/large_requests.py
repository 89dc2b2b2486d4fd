"""Large requests, one after the other, to one broker: the largest of every API, and some that were faults.

Judges look after each of them: another client's wait and the memory by the bounds of a single request, the
size and the codes of the responses, the processor time for each sent byte, and the log. In the end the broker
is restarted, and every record of its coordinators can be read.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.builder import assemble_batch
from tests.fuzz import known_faults
from tests.fuzz.connection import Closed, Connection
from tests.fuzz.fault import Fault
from tests.fuzz.judges import answers
from tests.fuzz.judges.latency import P99_S_MAX
from tests.fuzz.judges.memory import GROWTH_BYTES_MAX
from tests.fuzz.largest import frames
from tests.fuzz.life import Life
from tests.fuzz.prober import worked_s
from tests.fuzz.reading import codes_in, read_answer
from tests.fuzz.sequence import Exchange
from tests.fuzz.steps import ASK, BYTES, SASL, Step
from tests.fuzz.world import World
from tests.support import hostile, wire

ELEMENTS_MAX = 100_000
ANSWER_S_MAX = 120.0
READ_BYTES_MAX = 1 << 20
"""A longer answer is judged by its length alone."""
NOT_ASKED = SASL | {ApiKey.CONTROLLED_SHUTDOWN}
RECORD = bytes((0x0C, 0, 0, 0, 1, 1, 0))
"""Without key, value and headers."""


COST_S_MAX = 0.3
COST_PER_BYTE_S_MAX = 20e-6
"""Processor time of the broker's loop for a request: a fixed part, and this for each of its bytes."""
IDS = 1_000
MENTIONS = 1_000
REPEATED_BYTES_MAX = 16 << 20
STRANGERS = 6_000
DENIALS = 20_000


class Large(NamedTuple):
    name: str
    user: str
    frames: list[bytes]
    """Candidates from the largest to the smallest, or requests one after the other."""
    is_sequence: bool = False
    is_one_connection: bool = False
    """Of a sequence; otherwise each request has its own."""
    is_answered: bool = True
    is_served: bool = False
    """Whether the client has a right to a response without errors."""
    repeats_answers: bool = False
    """As Apache Kafka does: the response is as large as the budget of a request."""


def all_large() -> Iterator[Large]:
    yield from faults_of_sessions_and_batches()
    yield from faults_of_patterns_names_and_logs()
    for api in APIS.for_clients():
        if api.key not in NOT_ASKED:
            for name, candidates in frames(api.key, api.versions[-1], ELEMENTS_MAX):
                for user in ("mallory", "alice"):
                    yield Large(f"{name}, {user}", user, candidates)


def faults_of_sessions_and_batches() -> Iterator[Large]:
    partitions = [FetchPartition(partition=index) for index in range(99_000)]
    session = FetchRequest(
        max_wait_ms=0, session_epoch=0, topics=[FetchTopic(topic="hidden-t", partitions=partitions)]
    )
    yield Large("ten fetch sessions", "mallory", [hostile.frame_of(ApiKey.FETCH, 11, session)] * 10, True)
    resource = DescribeConfigsResource(resource_type=2, resource_name="fuzz-a", configuration_keys=None)
    again = DescribeConfigsRequest(
        resources=[resource] * 20_000, include_synonyms=True, include_documentation=True
    )
    described = [hostile.frame_of(ApiKey.DESCRIBE_CONFIGS, 4, again)]
    yield Large("a topic named again", "alice", described, True, repeats_answers=True)
    count = 2_000_000
    squeezed = zlib.compressobj(9, zlib.DEFLATED, 31)
    payload = squeezed.compress(RECORD * count) + squeezed.flush()
    batch = assemble_batch(
        payload, base_offset=0, leader_epoch=-1, attributes=1, last_offset_delta=count - 1,
        base_timestamp=1_000,
        max_timestamp=1_000_000, producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=count,
    )  # fmt: skip
    data = PartitionProduceData(index=0, records=bytes(batch))
    produce = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name="fuzz-b", partition_data=[data])]
    )
    search = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name="fuzz-b", partitions=[ListOffsetsPartition(partition_index=0, timestamp=999_999)]
            )
        ],
    )
    planted = [hostile.frame_of(ApiKey.PRODUCE, 7, produce), hostile.frame_of(ApiKey.LIST_OFFSETS, 5, search)]
    yield Large("a batch of two million records", "alice", planted, True)


def faults_of_patterns_names_and_logs() -> Iterator[Large]:
    starting = [_start_producer(f"txn-{number:05}" + "x" * 200) for number in range(IDS)]
    yield Large(f"{IDS} transactional ids", "alice", starting, True, True)
    patterns = [ListTransactionsRequest(transactional_id_pattern=each) for each in COSTLY_PATTERNS]
    asking = [hostile.frame_of(ApiKey.LIST_TRANSACTIONS, 2, each) for each in patterns * 4]
    yield Large("costly patterns", "alice", asking, True, True)
    joining = frame_with_client_id(_join(), b"\xff" * 32_767)
    yield Large("a client id that is no text", "alice", [joining], True, True, is_served=True)
    yield Large("a group named again", "alice", [_commit(), _named_again()], True, True)
    hidden = [MetadataRequestTopic(name=f"hidden-{number}") for number in range(DENIALS)]
    denied = hostile.frame_of(ApiKey.METADATA, 1, MetadataRequest(topics=hidden))
    yield Large("names without rights", "mallory", [denied], True, True)
    damaged = struct.pack(">hhih", ApiKey.METADATA, 1, 1, 32_000)
    yield Large("strangers without a request", "", [damaged] * STRANGERS, True, is_answered=False)


COSTLY_PATTERNS = ("(.?){900}z", "([^z]?[x-]?){400}z")


def frame_with_client_id(frame: bytes, client_id: bytes) -> bytes:
    (size,) = struct.unpack_from(">h", frame, 8)
    return frame[:8] + struct.pack(">h", len(client_id)) + client_id + frame[10 + size :]


def _start_producer(transactional_id: str) -> bytes:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return hostile.frame_of(ApiKey.INIT_PRODUCER_ID, 1, request)


def _join() -> bytes:
    """Writes the member with its client id."""
    joining = ConsumerGroupHeartbeatRequest(
        group_id="group-large",
        member_id="m" * 22,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=["fuzz-a"],
        topic_partitions=[],
    )
    return hostile.frame_of(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, joining)


def _commit() -> bytes:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata="m" * 1_000
        )
        for index in (0, 1)
    ]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("fuzz-a", "fuzz-b")]
    request = OffsetCommitRequest(group_id="group-again", generation_id_or_member_epoch=-1, topics=topics)
    return hostile.frame_of(ApiKey.OFFSET_COMMIT, 5, request)


def _named_again() -> bytes:
    groups = [OffsetFetchRequestGroup(group_id="group-again", topics=None)] * MENTIONS
    return hostile.frame_of(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))


def play(life: Life) -> Iterator[tuple[str, list[str]]]:
    """Each large request by name, with the complaints about it; then a restart."""
    for large in all_large():
        yield large.name, [f"{each} ({large.name})" for each in _judged(life, large)]
    ended = life.end()
    yield "a restart", ended.complaints if ended is not None else []


def play_scripts(life: Life) -> Iterator[tuple[str, list[str]]]:
    """Each known fault by name, with the complaints about it."""
    for fault in known_faults.ALL:
        yield fault.name, [f"{each} ({fault.name})" for each in _shown(life, fault)]


def _shown(life: Life, fault: Fault) -> Iterator[str]:
    """Another client, memory and log are judged beside the script itself."""
    world, prober = life.world, life.prober
    prober.taken()
    before_bytes = world.resident_bytes()
    try:
        yield from fault.show(world)
    except (Closed, TimeoutError) as error:
        yield f"stuck: {error or 'the connection is closed'}"
    life.requests += 1
    if fault.is_flood and prober.is_served(ANSWER_S_MAX):
        prober.taken()
    yield from _waits_and_memory(life, before_bytes)


def _waits_and_memory(life: Life, before_bytes: int) -> Iterator[str]:
    if not life.prober.is_served(ANSWER_S_MAX):
        yield "stuck: another client has no answer"
    worst_s = max((wait.busy_s for wait in life.prober.taken()), default=0.0)
    if worst_s > P99_S_MAX:
        yield f"slow: another client waits {worst_s * 1_000:.0f} ms"
    grown_bytes = life.world.resident_bytes() - before_bytes
    if grown_bytes > GROWTH_BYTES_MAX:
        yield f"memory: {grown_bytes >> 20} MB more"
    yield from life.log.complaints()


def _judged(life: Life, large: Large) -> Iterator[str]:
    world, prober = life.world, life.prober
    prober.taken()
    before_bytes, before_s = world.resident_bytes(), worked_s(world.pid)
    sent = sent_bytes = 0
    for step, answer in _exchanged(world, large):
        sent += 1
        sent_bytes += len(step.frame)
        if answer is not None and large.repeats_answers and len(answer) < REPEATED_BYTES_MAX:
            continue
        if answer is not None:
            message, _ = read_answer(step, answer) if len(answer) < READ_BYTES_MAX else (None, None)
            yield from answers.complaints(Exchange(step, answer, message))
            if large.is_served and (message is None or any(codes_in(message))):
                yield f"not served: {message}"
    life.requests += 1
    cost_s = worked_s(world.pid) - before_s
    if cost_s > COST_S_MAX * sent + COST_PER_BYTE_S_MAX * sent_bytes:
        yield f"cost: {cost_s:.1f} s of the processor for {sent_bytes} bytes"
    yield from _waits_and_memory(life, before_bytes)


def _exchanged(world: World, large: Large) -> Iterator[tuple[Step, bytes | None]]:
    """Requests with their responses; None where the connection is closed instead."""
    connection: Connection | None = None
    for frame in large.frames:
        if not large.is_answered:
            _send_as_stranger(world, frame)
            yield Step(BYTES, frame=frame), None
            continue
        key, version = struct.unpack_from(">hh", frame)
        step, answer = Step(ASK, 0, ApiKey(key), version, frame), None
        try:
            connection = connection or world.connect(large.user, ANSWER_S_MAX)
            connection.send(frame)
            answer = connection.one_answer()
        except Closed:
            pass
        if connection is not None and (answer is None or not large.is_one_connection):
            connection.close()
            connection = None
        yield step, answer
        if answer is not None and not large.is_sequence:
            break
    if connection is not None:
        connection.close()


def _send_as_stranger(world: World, frame: bytes) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", world.port), 10.0) as stranger:
        stranger.sendall(wire.framed(frame))
        stranger.recv(1)
