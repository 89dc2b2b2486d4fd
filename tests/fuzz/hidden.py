"""State that users without rights must not notice: a group with offsets and a member, an open transaction."""

from __future__ import annotations

import time
from typing import Any

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.schema.headers import read_response_header
from barnabas.protocol.schema.message import Message
from tests.fuzz.connection import Connection
from tests.fuzz.members import ASSIGNMENT, SUBSCRIPTION
from tests.fuzz.reading import codes_in
from tests.fuzz.world import World
from tests.support import hostile

TOPIC, GROUP, TRANSACTION = "hidden-t", "hidden-g", "hidden-x"
LOADING = frozenset({14, 15, 16, 51})
"""A coordinator that loads, or a transaction that is being ended."""
LOADED_S_MAX = 30.0


def hide(world: World) -> None:
    """Calls may repeat: what a sequence of the administrator removed is there again."""
    with world.connect("admin", LOADED_S_MAX) as admin:
        _commit(admin)
        _join(admin)
        _transact(admin)


def _commit(admin: Connection) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="note")
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
    _ask(admin, ApiKey.OFFSET_COMMIT, 5, request)


def _join(admin: Connection) -> None:
    joining = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=60_000,
        group_instance_id="hidden-instance",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    joined = _ask(admin, ApiKey.JOIN_GROUP, 5, joining)
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=ASSIGNMENT)]
    syncing = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="hidden-instance",
        assignments=assignments,
    )
    _ask(admin, ApiKey.SYNC_GROUP, 3, syncing)


def _transact(admin: Connection) -> None:
    initializing = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=600_000)
    producer = _ask(admin, ApiKey.INIT_PRODUCER_ID, 1, initializing)
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    _ask(admin, ApiKey.ADD_PARTITIONS_TO_TXN, 0, adding)


def _ask(admin: Connection, key: ApiKey, version: int, request: Message) -> Any:
    """The answer of a coordinator that has loaded what it coordinates."""
    deadline_s = time.monotonic() + LOADED_S_MAX
    while True:
        admin.send(hostile.frame_of(key, version, request))
        raw = memoryview(admin.one_answer())
        _, position = read_response_header(raw, key, version)
        found = response_class(key).decode(raw, version, position)[0]
        if not LOADING & set(codes_in(found)) or time.monotonic() > deadline_s:
            return found
        time.sleep(0.02)
