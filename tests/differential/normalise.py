"""An answer as a plain tree, with names in place of what two brokers cannot have in common.

Structs become dicts of the fields that the version has; lists of structs become dicts by the
field that tells their elements apart, so that a difference has a readable address. The order of
such a list is kept beside it, and compared, unless Kafka takes it from a hash table.

Topics that a case makes have the version in their names; here they are `topic-0`, `topic-1` …

Nothing is dropped: a value that is replaced is replaced by a word that says what kind of value
it was, so "an id here, none there" is still a difference.
"""

from __future__ import annotations

import re
import struct
import time
from typing import Any, TypeAlias

from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.regions import FileRegion
from barnabas.protocol.schema.message import Message
from tests.differential.case import CLOSED, Closed
from tests.differential.world import Side

Tree: TypeAlias = Any

KEYS = ("name", "topic", "topic_name", "topic_id", "resource_name", "log_dir", "key", "index",
        "partition_index", "partition", "partition_id", "api_key", "node_id", "broker_id", "transactional_id",
        "producer_id", "batch_index", "group_id", "member_id")  # fmt: skip
"""The field that tells the elements of a list apart: the first of these that they have."""

TEXTS = frozenset({"error_message", "batch_index_error_message", "documentation"})
"""Prose: that there is some is compared, what it says is not."""

HASHED = frozenset({
    ("MetadataResponse", "topics"), ("MetadataResponse", "topics.*.partitions"),
    ("ListOffsetsResponse", "topics"), ("ListOffsetsResponse", "topics.*.partitions"),
    ("CreateTopicsResponse", "topics"), ("CreateTopicsResponse", "topics.*.configs"),
    ("DeleteTopicsResponse", "responses"),
    ("DescribeConfigsResponse", "results.*.configs"),
    ("DescribeLogDirsResponse", "results.*.topics"),
    ("DescribeLogDirsResponse", "results.*.topics.*.partitions"),
    ("CreatePartitionsResponse", "results"),
    ("ElectLeadersResponse", "replica_election_results"),
    ("DeleteRecordsResponse", "topics"), ("DeleteRecordsResponse", "topics.*.partitions"),
    ("ProduceResponse", "responses"), ("ProduceResponse", "responses.*.partition_responses"),
    ("OffsetForLeaderEpochResponse", "topics"), ("OffsetForLeaderEpochResponse", "topics.*.partitions"),
    ("ApiVersionsResponse", "api_keys"),
    ("ApiVersionsResponse", "supported_features"), ("ApiVersionsResponse", "finalized_features"),
    ("ListConfigResourcesResponse", "config_resources"),
    ("OffsetCommitResponse", "topics"), ("OffsetFetchResponse", "topics"), ("OffsetDeleteResponse", "topics"),
    ("OffsetFetchResponse", "groups.*.topics"), ("OffsetFetchResponse", "groups.*.topics.*.partitions"),
    ("OffsetFetchResponse", "topics.*.partitions"), ("OffsetFetchResponse", "groups"),
    ("DescribeGroupsResponse", "groups"), ("DeleteGroupsResponse", "results"),
    ("ConsumerGroupDescribeResponse", "groups"),
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below"),
    ("AddPartitionsToTxnResponse", "results_by_topic_v3_and_below.*.results_by_partition"),
    ("AddPartitionsToTxnResponse", "results_by_transaction"),
    ("AddPartitionsToTxnResponse", "results_by_transaction.*.topic_results"),
    ("AddPartitionsToTxnResponse", "results_by_transaction.*.topic_results.*.results_by_partition"),
    ("TxnOffsetCommitResponse", "topics"), ("TxnOffsetCommitResponse", "topics.*.partitions"),
    ("WriteTxnMarkersResponse", "markers"), ("WriteTxnMarkersResponse", "markers.*.topics"),
    ("WriteTxnMarkersResponse", "markers.*.topics.*.partitions"),
    ("DescribeTransactionsResponse", "transaction_states.*.topics"),
    ("DescribeTransactionsResponse", "transaction_states.*.topics.*.partitions"),
    ("ListTransactionsResponse", "transaction_states"),
    ("AlterConfigsResponse", "responses"), ("IncrementalAlterConfigsResponse", "responses"),
})  # fmt: skip
"""Lists whose order Kafka takes from a hash table, so that no client can count on it."""

RESOURCE_TYPED = {"ListConfigResourcesResponse": (1,)}
"""Lists in which a name tells elements apart only together with the type of the resource."""

DAY_MS = 86_400_000
_GENERATED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|^[A-Za-z0-9_-]{22}$")
_BATCH = struct.Struct(">qiibIhiqqqhii")
_BATCH_FIELDS = ("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
                 "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence",
                 "count")  # fmt: skip


def normalise(answer: Message | bytes | Closed | None, version: int, side: Side, stem: str) -> Tree:
    if answer is CLOSED or answer is None:
        return repr(answer)
    if isinstance(answer, bytes):
        return answer.hex()
    assert isinstance(answer, Message)
    return _Normaliser(type(answer).__name__, version, side, stem).struct(answer, "")


class _Normaliser:
    def __init__(self, root: str, version: int, side: Side, stem: str) -> None:
        self._root = root
        self._version = version
        self._side = side
        self._stem = stem
        self._now_ms = int(time.time() * 1_000)

    def struct(self, message: Message, path: str) -> Tree:
        fields = [each for each in message.__schema__.fields if self._version in each.versions]
        return {
            each.name: self._value(each.name, getattr(message, each.name), f"{path}.{each.name}".lstrip("."))
            for each in fields
        }

    def _value(self, name: str, value: Any, path: str) -> Tree:
        if isinstance(value, Message):
            return self.struct(value, path)
        if name == "records":
            return self._records(value)
        if isinstance(value, list):
            return self._list(name, value, path)
        return self._scalar(name, value)

    def _list(self, name: str, values: list[Any], path: str) -> Tree:
        if not values or not isinstance(values[0], Message):
            found = [self._scalar(name, value) for value in values]
            return sorted(found) if (self._root, path) in HASHED else found
        key = next((each for each in KEYS if hasattr(values[0], each)), None)
        tree: dict[str, Tree] = {}
        for number, value in enumerate(values):
            label = str(number) if key is None else self._label(key, value)
            while label in tree:
                label += "+"
            tree[label] = self.struct(value, f"{path}.*")
        if (self._root, path) not in HASHED:
            tree["order"] = list(tree)
        return tree

    def _label(self, key: str, value: Message) -> str:
        if hasattr(value, "resource_type") and self._version in RESOURCE_TYPED.get(self._root, ()):
            return f"{value.resource_type}/{self._scalar(key, getattr(value, key))}"
        found = getattr(value, key)
        if not found and isinstance(found, str | None) and hasattr(value, "topic_id"):
            key, found = "topic_id", value.topic_id
        return str(self._scalar(key, found))

    def _scalar(self, name: str, value: Any) -> Tree:  # noqa: C901 - one line per kind of value
        side = self._side
        if name in TEXTS:
            return "<text>" if value else value
        if isinstance(value, Uuid):
            return self._uuid(value)
        if (word := side.word_for(self._root, name, value)) is not None:
            return word
        if name == "session_id" and value:
            return "<session>"
        if name == "producer_id" and value >= 0:
            return side.producer_label(value)
        if name == "log_dir" and value.startswith("/"):
            return "<directory>"
        if name in {"total_bytes", "usable_bytes"} and value >= 0:
            return "<bytes>"
        if name in {"member_id", "leader"} and value:
            value = _GENERATED.sub("<generated>", value)
        if isinstance(value, str):
            return value.replace(self._stem, "topic")
        if isinstance(value, int) and abs(value - self._now_ms) < DAY_MS:
            return "<now>"
        return value

    def _uuid(self, value: Uuid) -> str:
        if value == ZERO_UUID:
            return "<zero id>"
        name = self._side.topic_names.get(value)
        return f"<id of {name.replace(self._stem, 'topic')}>" if name else "<new id>"

    def _records(self, value: Any) -> Tree:
        if value is None:
            return None
        data = bytes(value.read() if isinstance(value, FileRegion) else value)
        found: list[Tree] = []
        position = 0
        while len(data) - position >= _BATCH.size:
            fields = dict(zip(_BATCH_FIELDS, _BATCH.unpack_from(data, position), strict=True))
            end = position + 12 + fields["length"]
            if end > len(data):
                break
            if abs(fields["max_timestamp"] - self._now_ms) < DAY_MS:
                fields |= {"max_timestamp": "<now>", "crc": "<of now>"}
            found.append(fields | {"payload": data[position + _BATCH.size : end].hex()})
            position = end
        return {"batches": found, "cut_off_bytes": len(data) - position}
