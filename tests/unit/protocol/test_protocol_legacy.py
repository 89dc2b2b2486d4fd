"""Versions that current Kafka has dropped, and the requests between brokers.

kio does not know these. aiokafka still carries hand-written schemas of most old versions, a
second opinion independent of ours; the rest are checked against the shapes in Kafka's schema
files, and the requests between brokers against bytes laid out by hand.
"""

from __future__ import annotations

import importlib
import io
import itertools
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocol.samples import (
    Versions,
    all_cases,
    all_classes,
    by_class,
    case_id,
    class_id,
    in_kio,
    naming,
    random_message,
)

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import FLEXIBLE_SINCE, ApiKey
from barnabas.protocol.messages import (
    controlled_shutdown,
    leader_and_isr,
    request_class,
    response_class,
    stop_replica,
    update_metadata,
)
from barnabas.protocol.schema.declarations import Field, Kind
from barnabas.protocol.schema.message import Message

MODULES = (
    "produce",
    "fetch",
    "commit",
    "offset",
    "coordination",
    "group",
    "metadata",
    "transaction",
    "admin",
)


def aiokafka_cases() -> list[tuple[type[Message], int, Any]]:
    found: dict[tuple[str, int], tuple[type[Message], int, Any]] = {}
    for name in MODULES:
        module = importlib.import_module(f"aiokafka.protocol.{name}")
        for theirs in vars(module).values():
            key, version = getattr(theirs, "API_KEY", None), getattr(theirs, "API_VERSION", None)
            if not isinstance(key, int) or not isinstance(version, int) or key not in FLEXIBLE_SINCE:
                continue
            if version >= FLEXIBLE_SINCE[key]:
                continue
            is_request = "Request" in theirs.__name__
            ours = (request_class if is_request else response_class)(ApiKey(key))
            if not in_kio((ours, version)):
                found[ours.__name__, version] = (ours, version, theirs)
    return list(found.values())


AIOKAFKA_CASES = aiokafka_cases()


def test_aiokafka_covers_the_versions_that_old_clients_need() -> None:
    covered = {(cls.__name__, version) for cls, version, _ in AIOKAFKA_CASES}
    firsts_in_kio = {
        "Produce": 3,
        "Fetch": 4,
        "ListOffsets": 1,
        "OffsetCommit": 2,
        "OffsetFetch": 1,
        "CreateTopics": 2,
        "DeleteTopics": 1,
        "DescribeAcls": 1,
        "DescribeConfigs": 1,
    }
    for name, first in firsts_in_kio.items():
        for version in range(first):
            assert {(f"{name}Request", version), (f"{name}Response", version)} <= covered


@pytest.mark.parametrize("case", AIOKAFKA_CASES, ids=lambda case: case_id(case[:2]))
@settings(max_examples=5, deadline=None, database=None)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 3))
def test_aiokafka_reads_and_writes_the_same_bytes(
    case: tuple[type[Message], int, Any], seed: int, size: int
) -> None:
    cls, version, theirs = case
    encoded = random_message(cls, version, Random(seed), size).encode(version)
    source = io.BytesIO(encoded)
    assert theirs.decode(source).encode() == encoded
    assert source.read() == b""


@pytest.mark.parametrize("message", by_class(all_cases()), ids=class_id)
def test_every_version_survives_the_round_trip(message: Versions) -> None:
    cls, versions = message
    for version, seed in itertools.product(versions, range(3)):
        with naming(version):
            sample = random_message(cls, version, Random(seed), 2)
            encoded = sample.encode(version)
            assert cls.decode(encoded, version) == (sample, len(encoded))
            # A message need not begin at the beginning, nor end at the end.
            assert cls.decode(b"##" + encoded + b"#", version, 2) == (sample, len(encoded) + 2)


def text(value: str) -> bytes:
    return pack(">h", len(value)) + value.encode()


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


TOPIC_ID = Uuid(bytes(range(16)))


def test_leader_and_isr_v1_lists_partitions_with_their_topic() -> None:
    request = leader_and_isr.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=5,
        ungrouped_partition_states=[
            leader_and_isr.LeaderAndIsrPartitionState(
                topic_name="t", partition_index=3, controller_epoch=5, leader=1, leader_epoch=9,
                isr=[1, 2], partition_epoch=4, replicas=[1, 2, 3], is_new=True,
            )
        ],
        live_leaders=[leader_and_isr.LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9092)],
    )  # fmt: skip
    partition = text("t") + pack(">iiiiiiiiiiii?", 3, 5, 1, 9, 2, 1, 2, 4, 3, 1, 2, 3, True)
    leader = pack(">i", 1) + text("h") + pack(">i", 9092)
    expected = pack(">iii", 1, 5, 1) + partition + pack(">i", 1) + leader
    assert request.encode(1) == expected
    assert leader_and_isr.LeaderAndIsrRequest.decode(expected, 1) == (request, len(expected))


def test_leader_and_isr_v7_groups_by_topic_and_is_flexible() -> None:
    request = leader_and_isr.LeaderAndIsrRequest(
        controller_id=1, controller_epoch=5, broker_epoch=77, type=2,
        topic_states=[
            leader_and_isr.LeaderAndIsrTopicState(
                topic_name="t", topic_id=TOPIC_ID,
                partition_states=[
                    leader_and_isr.LeaderAndIsrPartitionState(
                        partition_index=3, controller_epoch=5, leader=1, leader_epoch=9, isr=[1],
                        partition_epoch=4, replicas=[1, 2], adding_replicas=[2], leader_recovery_state=1,
                    )
                ],
            )
        ],
    )  # fmt: skip
    partition = (
        pack(">iiii", 3, 5, 1, 9) + b"\x02" + pack(">i", 1) + pack(">i", 4)
        + b"\x03" + pack(">ii", 1, 2) + b"\x02" + pack(">i", 2) + b"\x01"
        + pack(">?b", False, 1) + b"\x00"
    )  # fmt: skip
    topic = compact("t") + TOPIC_ID + b"\x02" + partition + b"\x00"
    expected = pack(">i?iqb", 1, False, 5, 77, 2) + b"\x02" + topic + b"\x01" + b"\x00"
    assert request.encode(7) == expected
    assert leader_and_isr.LeaderAndIsrRequest.decode(expected, 7) == (request, len(expected))


def test_leader_and_isr_answers_by_topic_name_and_later_by_topic_id() -> None:
    error = leader_and_isr.LeaderAndIsrPartitionError(topic_name="t", partition_index=3, error_code=56)
    old = leader_and_isr.LeaderAndIsrResponse(error_code=0, partition_errors=[error])
    assert old.encode(0) == pack(">hi", 0, 1) + text("t") + pack(">ih", 3, 56)
    topic = leader_and_isr.LeaderAndIsrTopicError(topic_id=TOPIC_ID, partition_errors=[error])
    new = leader_and_isr.LeaderAndIsrResponse(error_code=0, topics=[topic])
    assert (
        new.encode(5) == pack(">h", 0) + b"\x02" + TOPIC_ID + b"\x02" + pack(">ih", 3, 56) + b"\x00\x00\x00"
    )


def test_stop_replica_has_three_shapes() -> None:
    cls = stop_replica.StopReplicaRequest
    ungrouped = stop_replica.StopReplicaPartitionV0(topic_name="t", partition_index=3)
    v0 = cls(controller_id=1, controller_epoch=5, delete_partitions=True, ungrouped_partitions=[ungrouped])
    assert v0.encode(0) == pack(">ii?i", 1, 5, True, 1) + text("t") + pack(">i", 3)

    topic = stop_replica.StopReplicaTopicV1(name="t", partition_indexes=[3, 4])
    v1 = cls(controller_id=1, controller_epoch=5, broker_epoch=7, topics=[topic])
    assert v1.encode(1) == pack(">iiq?i", 1, 5, 7, False, 1) + text("t") + pack(">iii", 2, 3, 4)

    state = stop_replica.StopReplicaPartitionState(partition_index=3, leader_epoch=8, delete_partition=True)
    grouped = stop_replica.StopReplicaTopicState(topic_name="t", partition_states=[state])
    v3 = cls(controller_id=1, controller_epoch=5, broker_epoch=7, topic_states=[grouped])
    body = compact("t") + b"\x02" + pack(">ii?", 3, 8, True) + b"\x00\x00"
    assert v3.encode(3) == pack(">iiq", 1, 5, 7) + b"\x02" + body + b"\x00"


def test_update_metadata_v0_has_one_address_for_a_broker_and_v6_many() -> None:
    cls = update_metadata.UpdateMetadataRequest
    endpoint = update_metadata.UpdateMetadataEndpoint(
        port=9092, host="h", listener="PLAINTEXT", security_protocol=0
    )
    broker = update_metadata.UpdateMetadataBroker(
        id=1, v0_host="h", v0_port=9092, endpoints=[endpoint], rack="r"
    )
    request = cls(controller_id=1, controller_epoch=5, broker_epoch=7, live_brokers=[broker])
    v0 = pack(">iiii", 1, 5, 0, 1) + pack(">i", 1) + text("h") + pack(">i", 9092)
    assert request.encode(0) == v0
    address = pack(">i", 9092) + compact("h") + compact("PLAINTEXT") + pack(">h", 0) + b"\x00"
    v6 = pack(">iiq", 1, 5, 7) + b"\x01\x02" + pack(">i", 1) + b"\x02" + address + compact("r") + b"\x00\x00"
    assert request.encode(6) == v6


def test_controlled_shutdown() -> None:
    request = controlled_shutdown.ControlledShutdownRequest(broker_id=3, broker_epoch=7)
    assert request.encode(0) == pack(">i", 3)
    assert request.encode(2) == pack(">iq", 3, 7)
    assert request.encode(3) == pack(">iq", 3, 7) + b"\x00"
    remaining = controlled_shutdown.RemainingPartition(topic_name="t", partition_index=3)
    response = controlled_shutdown.ControlledShutdownResponse(remaining_partitions=[remaining])
    assert response.encode(0) == pack(">hi", 0, 1) + text("t") + pack(">i", 3)


def shape(fields: tuple[Field, ...], version: int) -> str:
    return " ".join(
        f"{field.name}:{kind_shape(field.kind, version)}"
        + ("?" if version in field.nullable else "")
        + ("" if field.tag is None else f"#{field.tag}")
        for field in fields
        if version in field.versions
    )


def kind_shape(kind: Kind, version: int) -> str:
    if kind.element is not None:
        return f"[{kind_shape(kind.element, version)}]"
    if kind.message is not None:
        return f"({shape(kind.message.__schema__.fields, version)})"
    return kind.name


def test_versions_that_no_library_knows_have_the_shape_of_kafkas_schemas() -> None:
    """`shapes.txt` was derived from Apache Kafka's schema files, not from our declarations."""
    classes = {cls.__name__: cls for cls in all_classes()}
    for line in Path(__file__).with_name("shapes.txt").read_text().splitlines():
        title, expected = line.split(": ", 1)
        name, versions = title.split(" v")
        first, _, last = versions.partition("-")
        schema = classes[name].__schema__
        for version in range(int(first), int(last or first) + 1):
            flexible = "flexible " if version in schema.flexible else ""
            assert flexible + shape(schema.fields, version) == expected, (name, version)


def test_every_version_is_compared_with_another_implementation() -> None:
    known = {(cls.__name__, version) for cls, version, _ in AIOKAFKA_CASES}
    for line in Path(__file__).with_name("shapes.txt").read_text().splitlines():
        name, versions = line.split(": ", 1)[0].split(" v")
        first, _, last = versions.partition("-")
        known |= {(name, version) for version in range(int(first), int(last or first) + 1)}
    alone = {case_id(case) for case in all_cases() if not in_kio(case)} - {f"{n}-v{v}" for n, v in known}
    assert alone == set()
