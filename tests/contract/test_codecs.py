"""Codec contract: an encoder refuses every value that its decoder refuses.

It covers messages of every API and version, the records of both coordinators, znodes, the journal of the
embedded store, checkpoints and snapshots. For any value, encoding raises an error, or decoding returns the
value. A codec that broke this would write a record that a coordinator cannot load, or a znode that stops a
controller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.declared import BLOBS, TEXTS, UUIDS, messages, numbers

from barnabas.cluster.embedded import journal_codec, tree
from barnabas.cluster.znodes import acls as acl_znodes
from barnabas.cluster.znodes import brokers as broker_znodes
from barnabas.cluster.znodes import delegation_tokens as delegation_token_znodes
from barnabas.cluster.znodes import layout as znodes
from barnabas.cluster.znodes import notifications as notes
from barnabas.cluster.znodes.consumer_offsets import ConsumerOffsetZnode
from barnabas.config.properties import read_properties
from barnabas.coordinator.group.offsets import records as offset_records
from barnabas.coordinator.group.state import records as group_records
from barnabas.coordinator.transaction.state import record_schemas as transaction_schemas
from barnabas.coordinator.transaction.state import records as transaction_records
from barnabas.coordinator.transaction.state.metadata import TransactionMetadata
from barnabas.coordinator.transaction.state.states import EMPTY, TransactionState
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.service.store import Stored, Target
from barnabas.protocol.api_keys import FLEXIBLE_SINCE, ApiKey
from barnabas.protocol.messages import consumer_protocol, request_class, response_class
from barnabas.protocol.schema.declarations import Pace
from barnabas.protocol.schema.message import Message
from barnabas.security.credentials.delegation_token import DelegationToken
from barnabas.security.credentials.scram_credential import ScramCredential, ScramMechanism
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.storage.directory.directory_properties import MetaProperties
from barnabas.storage.files import checkpoints
from barnabas.storage.log.parts.partition_metadata import _parse, render_topic_id
from barnabas.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from barnabas.storage.producers.producer_snapshot import parse_snapshot, render_snapshot

REFUSALS = (KafkaError, ValueError, struct.error)

KEYS = [ApiKey(number) for number in FLEXIBLE_SINCE]
MESSAGES: list[type[Message]] = [
    *(cls(key) for key in KEYS for cls in (request_class, response_class)),
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    *group_records.VALUE_CLASSES,
    *group_records.VALUE_CLASSES.values(),
    transaction_schemas.TransactionLogKey,
    transaction_schemas.TransactionLogValue,
]


def in_slices(message: Message, version: int) -> bytes:
    parts: list[Any] = []
    steps = message.sliced_encoder(version)(message, parts, bytearray())
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return b"".join((*parts, done.value))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@settings(max_examples=25, derandomize=True, database=None)
@given(data=st.data())
def test_a_message_is_refused_or_read_back(cls: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(cls.supported_versions()))
    message = data.draw(messages(cls, version))
    pace = data.draw(st.sampled_from((Pace.WHOLE, Pace.SLICED)))
    try:
        written = message.encode(version) if pace is Pace.WHOLE else in_slices(message, version)
    except KafkaError:
        return
    found, end = cls.decode(written, version)
    assert (found, end) == (message, len(written))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_string_beyond_the_bound_is_refused(cls: type[Message]) -> None:
    for field in cls.__schema__.fields:
        if field.kind.name != "string":
            continue
        for version in cls.supported_versions():
            if version in field.versions:
                with pytest.raises(KafkaError):
                    cls(**{field.name: "x" * 32_768}).encode(version)
                assert cls(**{field.name: "x" * 32_767}).encode(version)


def made(cls: Callable[..., Any], *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Of these values alone: `builds` would draw the fields of a named tuple that have a default."""
    return st.tuples(*values).map(lambda drawn: cls(*drawn))


class Codec(NamedTuple):
    name: str
    values: st.SearchStrategy[Any]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    compared: Callable[[Any], Any] = lambda value: value


int32, int64 = numbers(32), numbers(64)
places = made(TopicPartition, TEXTS, int32)
broker_ids = st.lists(int32, max_size=3).map(tuple)


def transaction_metadata(transactional_id: str) -> st.SearchStrategy[TransactionMetadata]:
    return st.sampled_from(TransactionState).flatmap(
        lambda state: made(
            TransactionMetadata,
            st.just(transactional_id),
            int64,
            numbers(16),
            int32,
            st.just(state),
            st.frozensets(places, max_size=3) if state is not EMPTY else st.just(frozenset()),
            int64,
            int64,
            int64,
            int64,
            numbers(16),
        )
    )


def group_record(key_class: type[Message]) -> st.SearchStrategy[group_records.GroupRecord]:
    value = group_records.VALUE_CLASSES[key_class]
    written = group_records._WRITTEN_VERSIONS.get(value, 0)
    key = messages(key_class, group_records._KEY_VERSIONS[key_class])
    return made(group_records.GroupRecord, key, messages(value, written) | st.none())


def encode_principal_token(token: DelegationToken) -> bytes:
    return delegation_token_znodes.DelegationTokenZnode.encode(token)


def properties_of(content: bytes) -> MetaProperties:
    found = read_properties(content.decode())
    return MetaProperties(0, int(found["broker.id"]), found.get("cluster.id"))


principals = made(KafkaPrincipal, TEXTS, TEXTS)
listeners = made(
    ListenerEndpoint, st.just("PLAINTEXT") | TEXTS, made(Endpoint, TEXTS, int32), st.just("PLAINTEXT") | TEXTS
)
changes = st.one_of(
    made(tree.Created, TEXTS, BLOBS, st.integers(0, 1 << 63)),
    made(tree.Changed, TEXTS, BLOBS),
    made(tree.Deleted, TEXTS),
)
batches = made(BatchMetadata, int32, st.integers(0, (1 << 63) - 1), int32, int64)

CODECS = (
    *(
        Codec(
            cls.__name__.removesuffix("Key"),
            group_record(cls),
            lambda record: record.encode(),
            lambda written: group_records.decode_record(*written),
        )
        for cls in group_records.VALUE_CLASSES
    ),
    Codec(
        "OffsetRecord",
        st.tuples(
            TEXTS,
            TEXTS,
            int32,
            made(
                offset_records.OffsetAndMetadata,
                int64,
                int32,
                TEXTS,
                int64,
                st.just(offset_records.NO_EXPIRY),
                st.just(-1),
                UUIDS,
            ),
        ),
        lambda value: offset_records.OffsetRecord(*value).encode(),
        lambda written: (
            *offset_records.decode_key(written[0]),
            offset_records.decode_value(written[1]),
        ),
    ),
    Codec(
        "TransactionRecord",
        TEXTS.flatmap(transaction_metadata),
        lambda metadata: transaction_records.TransactionRecord(metadata.transactional_id, metadata).encode(),
        lambda written: transaction_records.decode_record(*written).metadata,
    ),
    Codec("ClusterIdZnode", TEXTS, znodes.ClusterIdZnode.encode, znodes.ClusterIdZnode.decode),
    Codec(
        "ControllerZnode",
        int32,
        lambda broker_id: znodes.ControllerZnode.encode(broker_id, 1),
        znodes.ControllerZnode.decode,
    ),
    Codec(
        "ControllerEpochZnode", int32, znodes.ControllerEpochZnode.encode, znodes.ControllerEpochZnode.decode
    ),
    Codec(
        "TopicZnode",
        made(
            znodes.TopicInfo,
            UUIDS | st.none(),
            st.dictionaries(
                st.integers(0, 9) | st.sampled_from((99_999, 100_000, -1)),
                made(znodes.ReplicaAssignment, broker_ids, broker_ids, broker_ids),
                max_size=3,
            ).map(lambda given: dict(sorted(given.items()))),
        ),
        lambda info: znodes.TopicZnode.encode(*info),
        lambda data: znodes.TopicZnode.decode("t", data),
    ),
    Codec(
        "PartitionStateZnode",
        made(znodes.PartitionState, int32, int32, broker_ids, int32, st.integers(-1, 2)),
        znodes.PartitionStateZnode.encode,
        lambda data: znodes.PartitionStateZnode.decode(data, 0),
    ),
    Codec("ConfigZnode", st.dictionaries(TEXTS, TEXTS), znodes.ConfigZnode.encode, znodes.ConfigZnode.decode),
    Codec(
        "ProducerIdBlockZnode",
        made(znodes.ProducerIdBlock, int32, int64, int64),
        znodes.ProducerIdBlockZnode.encode,
        znodes.ProducerIdBlockZnode.decode,
    ),
    Codec(
        "BrokerIdZnode",
        made(
            broker_znodes.BrokerInfo,
            st.integers(0, 9),
            st.lists(listeners, max_size=2).map(tuple),
            TEXTS | st.none(),
            st.dictionaries(TEXTS, st.tuples(numbers(16), numbers(16)), max_size=2),
            int64,
        ),
        broker_znodes.BrokerIdZnode.encode,
        lambda data: broker_znodes.BrokerIdZnode.decode(0, data, -1),
        lambda info: info._replace(id=0),
    ),
    Codec(
        "AclZnode",
        st.frozensets(made(acl_znodes.AclEntry, TEXTS, TEXTS, TEXTS, TEXTS), max_size=3),
        acl_znodes.AclZnode.encode,
        acl_znodes.AclZnode.decode,
    ),
    Codec(
        "AclChangeZnode literal",
        st.tuples(st.sampled_from(("Topic", "TransactionalId")) | TEXTS, TEXTS),
        lambda change: acl_znodes.AclChangeZnode.encode_literal(*change),
        acl_znodes.AclChangeZnode.decode_literal,
    ),
    Codec(
        "AclChangeZnode prefixed",
        st.tuples(st.sampled_from(("Topic", "TransactionalId")) | TEXTS, TEXTS),
        lambda change: acl_znodes.AclChangeZnode.encode_prefixed(*change),
        acl_znodes.AclChangeZnode.decode_prefixed,
    ),
    Codec("ConfigChangeZnode", TEXTS, notes.ConfigChangeZnode.encode, notes.ConfigChangeZnode.decode),
    *(
        Codec(znode.__name__, st.sets(places, max_size=3), znode.encode, znode.decode)
        for znode in (notes.IsrChangeZnode, notes.PreferredReplicaElectionZnode)
    ),
    Codec("LogDirEventZnode", int32, notes.LogDirEventZnode.encode, notes.LogDirEventZnode.decode),
    Codec(
        "ReassignPartitionsZnode",
        st.dictionaries(places, broker_ids, max_size=3),
        notes.ReassignPartitionsZnode.encode,
        notes.ReassignPartitionsZnode.decode,
    ),
    Codec("ConsumerOffsetZnode", int64, ConsumerOffsetZnode.encode, ConsumerOffsetZnode.decode),
    Codec(
        "DelegationTokenZnode",
        made(
            DelegationToken,
            TEXTS,
            principals,
            principals,
            st.lists(principals, max_size=2).map(tuple),
            int64,
            int64,
            int64,
        ),
        encode_principal_token,
        delegation_token_znodes.DelegationTokenZnode.decode,
    ),
    Codec(
        "transaction of the embedded store",
        made(tree.Transaction, st.integers(1, 1 << 64), int64, st.lists(changes, max_size=3)),
        journal_codec.encode_transaction,
        lambda data: journal_codec.decode_transaction(memoryview(data)[8:]),
    ),
    Codec(
        "offset checkpoint",
        st.dictionaries(places, int64),
        checkpoints.render_offsets,
        checkpoints.parse_offsets,
    ),
    Codec(
        "epoch checkpoint",
        st.lists(st.tuples(int32, int64)),
        checkpoints.render_epochs,
        checkpoints.parse_epochs,
    ),
    Codec(
        "producer snapshot",
        st.lists(
            made(ProducerEntry, int64, numbers(16), int32, int64, int64, st.lists(batches, max_size=7)),
            max_size=3,
        ),
        render_snapshot,
        parse_snapshot,
    ),
    Codec(
        "meta.properties",
        made(MetaProperties, st.just(0), st.integers(0, 9), TEXTS | st.none()),
        MetaProperties.render,
        properties_of,
    ),
    Codec("partition.metadata", UUIDS, render_topic_id, _parse),
    *(
        Codec(
            mechanism.mechanism_name,
            made(
                ScramCredential,
                BLOBS,
                st.sampled_from((b"", b"\0")) | st.binary(min_size=mechanism.size, max_size=mechanism.size),
                st.sampled_from((b"", b"\0")) | st.binary(min_size=mechanism.size, max_size=mechanism.size),
                st.sampled_from((0, 4_095, 4_096, 16_384, 16_385)),
            ),
            ScramCredential.encode,
            partial(ScramCredential.decode, mechanism),
        )
        for mechanism in ScramMechanism
    ),
    Codec(
        "pipeline",
        made(
            Stored,
            st.just("p"),
            st.dictionaries(TEXTS, TEXTS, max_size=3),
            st.sampled_from(Target),
            int32,
            st.none() | st.dictionaries(TEXTS, st.dictionaries(TEXTS, int64, max_size=2), max_size=2),
        ),
        Stored.to_bytes,
        lambda data: Stored.of_bytes("p", data),
    ),
)


BY_NAME = {codec.name: codec for codec in CODECS}
assert len(BY_NAME) == len(CODECS)


@pytest.mark.parametrize("name", BY_NAME)
@settings(max_examples=60, derandomize=True, database=None)
@given(data=st.data())
def test_what_is_written_can_be_read(name: str, data: st.DataObject) -> None:
    codec = BY_NAME[name]
    value = data.draw(codec.values)
    try:
        written = codec.encode(value)
    except REFUSALS:
        return
    assert codec.decode(written) == codec.compared(value)
