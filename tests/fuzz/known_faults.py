"""Faults that brokers had once, each played to a running broker in the requests that showed it.

They need an order of requests, another connection or another setting, so that no single large request shows
them. Each script yields a complaint if the fault is there. `python -m tests.fuzz.run --scripts` plays all.
"""

from __future__ import annotations

import contextlib
import gzip
import select
import struct
import time
from collections.abc import Iterator
from random import Random

from barnabas.core.errors import (
    FetchSessionIdNotFound,
    GroupMaxSizeReached,
    InvalidProducerIdMapping,
    MemberIdRequired,
    MessageTooLarge,
    PolicyViolation,
)
from barnabas.core.limits import DELEGATION_TOKENS_PER_OWNER_MAX, GROUP_MEMORY_PER_CONNECTION_BYTES_MAX
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records.batch import TRANSACTIONAL_FLAG
from barnabas.records.builder import assemble_batch
from barnabas.records.compression import Codec, compress
from tests.fuzz import long_turns
from tests.fuzz.connection import Closed, Connection
from tests.fuzz.fault import ANSWER_S_MAX, Fault, ask, beside, read
from tests.fuzz.world import World
from tests.support import hostile, wire

IDS_TOGETHER = 60
PENDING_BYTES_MIN = 1_000
"""A member id that is given out takes more."""
METADATA_BYTES = 6 << 20
CLAIMED = (1 << 31) - 1
BOMB_BYTES = 28 << 20
BLOCK_BYTES = 1 << 20
UNCOMPILED_PATTERNS = 10
MALFORMED = 4
QUOTA_PERCENT = 0.1
DELAYED_S_MIN = 0.3
QUEUED_BYTES = 20 << 20
WRITABLE_S_MAX = 1.0
ARRIVING = 8
LEAVING_EPOCH = -1
GROWTH_BYTES_MAX = 64 << 20
RECORD = bytes((0x0C, 0, 0, 0, 1, 1, 0))


def join(group_id: str, *protocols: tuple[str, bytes], member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id, session_timeout_ms=10_000, rebalance_timeout_ms=1_000, member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )  # fmt: skip


def member_ids_that_nobody_uses(world: World) -> Iterator[str]:
    """Each is kept until its session would end."""
    given = 0
    frame = hostile.frame_of(ApiKey.JOIN_GROUP, 4, join("group-pending", ("range", b"")))
    with world.connect("alice", ANSWER_S_MAX) as alice:
        for _ in range(GROUP_MEMORY_PER_CONNECTION_BYTES_MAX // PENDING_BYTES_MIN // IDS_TOGETHER):
            for _ in range(IDS_TOGETHER):
                alice.send(frame)
            answers: list[bytes] = []
            while len(answers) < IDS_TOGETHER:
                answers += alice.answers(ANSWER_S_MAX)
            codes = {read(ApiKey.JOIN_GROUP, 4, answer).error_code for answer in answers}
            if GroupMaxSizeReached.code in codes:
                return
            if codes != {MemberIdRequired.code}:
                yield f"joins without an id are answered with {codes}"
                return
            given += len(answers)
    yield f"memory: {given} member ids were given to one connection"


def metadata_of_a_join(world: World) -> Iterator[str]:
    with world.connect("alice", ANSWER_S_MAX) as alice:
        request = join("group-metadata", ("range", bytes(METADATA_BYTES)))
        code = ask(alice, ApiKey.JOIN_GROUP, 3, request).error_code
    if code != MessageTooLarge.code:
        yield f"memory: a member joins with {METADATA_BYTES} bytes of metadata: {code}"


def protocol_named_twice(world: World) -> Iterator[str]:
    """It counts once, or no member of the group would agree with another."""
    with world.connect("alice", ANSWER_S_MAX) as alice, world.connect("alice", ANSWER_S_MAX) as other:
        twice = ask(alice, ApiKey.JOIN_GROUP, 3, join("group-twice", ("range", b"1"), ("range", b"2")))
        if twice.error_code or [each.metadata for each in twice.members] != [b"1"]:
            yield f"a protocol that is named twice: {twice}"
        # The second member's join ends with the first one's session, which is silent from here on.
        joined = ask(other, ApiKey.JOIN_GROUP, 3, join("group-twice", ("range", b"3")))
        if joined.error_code:
            yield f"after a protocol that is named twice nobody else joins: {joined.error_code}"


def session_of_another_connection(world: World) -> Iterator[str]:
    partition = FetchPartition(partition=0, partition_max_bytes=1_000)
    topics = [FetchTopic(topic="fuzz-a", partitions=[partition])]
    with world.connect("alice") as alice:
        opened = ask(alice, ApiKey.FETCH, 11, FetchRequest(max_wait_ms=0, session_epoch=0, topics=topics))
        for user in ("mallory", "alice"):
            with world.connect(user) as other:
                for epoch in (7, 1):
                    guess = FetchRequest(
                        max_wait_ms=0, session_id=opened.session_id, session_epoch=epoch, topics=[]
                    )
                    code = ask(other, ApiKey.FETCH, 11, guess).error_code
                    if code != FetchSessionIdNotFound.code:
                        yield f"{user} finds the session of another connection, epoch {epoch}: {code}"


def tokens_of_one_user(world: World) -> Iterator[str]:
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    frame = hostile.frame_of(ApiKey.CREATE_DELEGATION_TOKEN, 2, request)
    with world.connect("reader", ANSWER_S_MAX) as reader:
        for _ in range(DELEGATION_TOKENS_PER_OWNER_MAX + 1):
            reader.send(frame)
            created = read(ApiKey.CREATE_DELEGATION_TOKEN, 2, reader.one_answer())
            if created.error_code:
                if created.error_code != PolicyViolation.code:
                    yield f"a token is refused with {created.error_code}"
                return
    yield f"memory: one user without a right has {DELEGATION_TOKENS_PER_OWNER_MAX + 1} tokens"


def batch(payload: bytes, count: int, codec: Codec = Codec.GZIP) -> bytes:
    return bytes(
        assemble_batch(
            payload, base_offset=0, leader_epoch=-1, attributes=codec, last_offset_delta=count - 1,
            base_timestamp=1_000, max_timestamp=1_000_000, producer_id=-1, producer_epoch=-1,
            base_sequence=-1, record_count=count,
        )
    )  # fmt: skip


def produce(connection: Connection, topic: str, records: bytes) -> int:
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = ask(connection, ApiKey.PRODUCE, 7, request)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def claim_of_many_records(world: World) -> Iterator[str]:
    """The end of the log would move by as much."""
    with world.connect("alice") as alice:
        if not produce(alice, "fuzz-a", batch(gzip.compress(b"no records at all"), CLAIMED)):
            yield f"a batch of a hundred bytes claims {CLAIMED} records, and is appended"


def bomb_for_a_compacted_topic(world: World) -> Iterator[str]:
    """Its records are read and compressed again, which the loop must not do."""
    settings = {"cleanup.policy": "compact", "compression.type": "gzip", "max.message.bytes": str(64 << 20)}
    topic = CreatableTopic(
        name="fuzz-compacted", num_partitions=1, replication_factor=1,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )  # fmt: skip
    with world.connect("admin", ANSWER_S_MAX) as admin:
        ask(admin, ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic]))
    # Zstd finds the repetition, gzip does not.
    block = Random(1).randbytes(BLOCK_BYTES)
    record = wire.record(block * (BOMB_BYTES // BLOCK_BYTES), key=b"k")
    with world.connect("alice", ANSWER_S_MAX) as alice:
        produce(alice, "fuzz-compacted", batch(compress(Codec.ZSTD, record), 1, Codec.ZSTD))
    yield from ()


def old_fetch_of_a_planted_batch(world: World) -> Iterator[str]:
    """All its records become messages of the old format."""
    with world.connect("alice", ANSWER_S_MAX) as alice:
        code = produce(alice, "fuzz.c", batch(gzip.compress(RECORD * 100_000), 100_000))
        if code:
            yield f"the batch is refused: {code}"
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, max_bytes=50 << 20, topics=[FetchTopic(topic="fuzz.c", partitions=[partition])]
        )
        fetched = ask(alice, ApiKey.FETCH, 3, request).responses[0].partitions[0]
        if fetched.error_code or not fetched.records:
            yield f"an old consumer gets nothing: {fetched.error_code}"


def patterns_that_do_not_compile(world: World) -> Iterator[str]:
    with world.connect("alice", ANSWER_S_MAX) as alice:
        starting = InitProducerIdRequest(transactional_id="txn-listed", transaction_timeout_ms=60_000)
        ask(alice, ApiKey.INIT_PRODUCER_ID, 1, starting)
        for number in range(UNCOMPILED_PATTERNS):
            pattern = f"(?i){number}" + "\\pL" * 1_000
            request = ListTransactionsRequest(transactional_id_pattern=pattern)
            ask(alice, ApiKey.LIST_TRANSACTIONS, 2, request)
    yield from ()


def write_into_the_transaction_of_another_user(world: World) -> Iterator[str]:
    """The right to a transactional id is no right to the producer id of another user."""
    with world.connect("admin", ANSWER_S_MAX) as owner, world.connect("alice", ANSWER_S_MAX) as intruder:
        theirs, own = _producer(owner, "hidden-x"), _producer(intruder, "txn-b")
        for connection, name, producer in ((owner, "hidden-x", theirs), (intruder, "txn-b", own)):
            if code := _write(connection, name, producer, 0):
                yield f"{name} cannot write in its own transaction: {code}"
        code = _write(intruder, "txn-b", theirs, 1)
        if code != InvalidProducerIdMapping.code:
            yield f"a write into another user's open transaction is answered with {code}"
        if code := _write(owner, "hidden-x", theirs, 1):
            yield f"after it the owner of the transaction cannot write: {code}"
        for connection, name, producer in ((owner, "hidden-x", theirs), (intruder, "txn-b", own)):
            abort = EndTxnRequest(
                transactional_id=name, producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch, committed=False,
            )  # fmt: skip
            if code := ask(connection, ApiKey.END_TXN, 5, abort).error_code:
                yield f"{name} cannot end its transaction: {code}"


def _producer(connection: Connection, transactional_id: str) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    deadline_s = time.monotonic() + ANSWER_S_MAX
    while time.monotonic() < deadline_s:
        producer: InitProducerIdResponse = ask(connection, ApiKey.INIT_PRODUCER_ID, 5, request)
        if not producer.error_code:
            return producer
        time.sleep(0.05)  # the previous transaction of the id is being aborted
    raise TimeoutError(f"{transactional_id} gets no producer id: {producer.error_code}")


def _write(
    connection: Connection, transactional_id: str, producer: InitProducerIdResponse, sequence: int
) -> int:
    records = wire.batch(
        attributes=TRANSACTIONAL_FLAG, producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch, base_sequence=sequence,
    )  # fmt: skip
    data = PartitionProduceData(index=1, records=records)
    request = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=10_000,
        topic_data=[TopicProduceData(name="fuzz-a", partition_data=[data])],
    )  # fmt: skip
    answer = ask(connection, ApiKey.PRODUCE, 12, request)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def malformed_requests_above_a_quota(world: World) -> Iterator[str]:
    """Reading them is charged too: their connections are closed later."""
    names = [MetadataRequestTopic(name=f"n{number}") for number in range(90_000)]
    frame = bytearray(hostile.frame_of(ApiKey.METADATA, 9, MetadataRequest(topics=names)))
    frame[-200_000:] = b"\xff" * 200_000
    usual_s = min(_closing_times(world, "alice", bytes(frame)))
    _set_quota(world, QUOTA_PERCENT)
    try:
        _, *delayed = _closing_times(world, "reader", bytes(frame))
    finally:
        _set_quota(world, None)
    if min(delayed) - usual_s < DELAYED_S_MIN:
        yield f"malformed requests above a quota close after {min(delayed):.2f} s, others {usual_s:.2f} s"


def _closing_times(world: World, user: str, frame: bytes) -> Iterator[float]:
    """Seconds until the connection of each malformed request is closed."""
    for _ in range(MALFORMED):
        with world.connect(user, ANSWER_S_MAX) as connection:
            began_s = time.monotonic()
            with contextlib.suppress(Closed):
                connection.send(frame)
                connection.one_answer()
            yield time.monotonic() - began_s


def _set_quota(world: World, percent: float | None) -> None:
    change = OpData(key="request_percentage", value=percent or 0.0, remove=percent is None)
    entry = EntryData(entity=[EntityData(entity_type="user", entity_name="reader")], ops=[change])
    with world.connect("admin") as admin:
        ask(admin, ApiKey.ALTER_CLIENT_QUOTAS, 0, AlterClientQuotasRequest(entries=[entry]))


def large_requests_that_arrive_together(world: World) -> Iterator[str]:
    """`queued.max.request.bytes` bounds them, in a broker that sets it."""
    with beside(world, {"queued.max.request.bytes": str(QUEUED_BYTES)}) as other:
        header = wire.request_header(ApiKey.PRODUCE, 7, 1, "fuzz")
        size_bytes = 10 << 20
        head = size_bytes.to_bytes(4) + header
        before_bytes = other.resident_bytes()
        with contextlib.ExitStack() as stack:
            for _ in range(ARRIVING):
                sender = stack.enter_context(other.connect("alice"))
                _send_until_full(sender, head + bytes(size_bytes - len(header) - 1))
            grown_bytes = other.resident_bytes() - before_bytes
    if grown_bytes > GROWTH_BYTES_MAX:
        yield f"memory: {grown_bytes >> 20} MB for arriving requests, of {QUEUED_BYTES >> 20} allowed"


def member_that_cannot_leave(world: World) -> Iterator[str]:
    """The last member of the consumer protocol leaves a group whose other members are classic."""
    readable = struct.pack(">h", 1) + ConsumerProtocolSubscription(topics=["fuzz-a"]).encode(1)
    settings = {"group.consumer.migration.policy": "bidirectional"}
    with (
        beside(world, settings) as other,
        other.connect("alice") as leaving,
        other.connect("alice", ANSWER_S_MAX) as odd,
        other.connect("alice", ANSWER_S_MAX) as usual,
    ):
        if code := _beat(leaving, 0):
            yield f"a consumer cannot join: {code}"
        for member, protocols in (
            (odd, (("x", readable), ("cooperative-sticky", b""))),
            (usual, (("cooperative-sticky", readable),)),
        ):
            joined = ask(member, ApiKey.JOIN_GROUP, 3, join("group-mixed", *protocols))
            if joined.error_code:
                yield f"a classic member cannot join: {joined.error_code}"
        if code := _beat(leaving, LEAVING_EPOCH):
            yield f"the last member of the consumer protocol cannot leave: {code}"


def _beat(connection: Connection, epoch: int) -> int:
    beat = ConsumerGroupHeartbeatRequest(
        group_id="group-mixed", member_id="m" * 22, member_epoch=epoch, rebalance_timeout_ms=10_000,
        subscribed_topic_names=["fuzz-a"], topic_partitions=[],
    )  # fmt: skip
    code: int = ask(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, beat).error_code
    return code


def _send_until_full(connection: Connection, data: bytes) -> None:
    """All of it, or as much as the broker takes: it does not read what has no room."""
    rest = bytearray(data)
    while rest and select.select([], [connection], [], WRITABLE_S_MAX)[1]:
        del rest[: connection.send_some(rest)]


ALL = (
    Fault("metadata of a join", metadata_of_a_join),
    Fault("a protocol that is named twice", protocol_named_twice),
    Fault("the session of another connection", session_of_another_connection),
    Fault("a claim of many records", claim_of_many_records),
    Fault("a bomb for a compacted topic", bomb_for_a_compacted_topic),
    Fault("an old fetch of a planted batch", old_fetch_of_a_planted_batch),
    Fault("patterns that do not compile", patterns_that_do_not_compile),
    Fault("member ids that no member uses", member_ids_that_nobody_uses, is_flood=True),
    Fault("a member that cannot leave", member_that_cannot_leave),
    Fault("large requests that arrive together", large_requests_that_arrive_together),
    Fault("malformed requests above a quota", malformed_requests_above_a_quota),
    Fault("tokens of one user", tokens_of_one_user, is_flood=True),
    Fault("a write into the transaction of another user", write_into_the_transaction_of_another_user),
    *long_turns.ALL,
)
