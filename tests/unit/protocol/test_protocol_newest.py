"""Versions that are newer than kio's schemas, against bytes that Kafka's Java client 4.4.0 wrote.

Each constant is what `MessageUtil` of that client gives for the message beside it.
"""

from __future__ import annotations

import pytest

from barnabas.core.ids import Uuid
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.protocol.schema.message import Message

TOPIC_ID = Uuid(bytes(range(1, 17)))

CASES: list[tuple[Message, int, str]] = [
    (
        ApiVersionsRequest(
            client_software_name="java", client_software_version="4.4.0", cluster_id="the-cluster", node_id=7
        ),
        5,
        "056a61766106342e342e300c7468652d636c75737465720000000700",
    ),
    (
        ApiVersionsRequest(client_software_name="java", client_software_version="4.4.0"),
        5,
        "056a61766106342e342e3000ffffffff00",
    ),
    (
        TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=11,
            producer_epoch=3,
            generation_id_or_member_epoch=5,
            member_id="m",
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=2,
                            committed_offset=99,
                            committed_leader_epoch=4,
                            committed_metadata="x",
                        )
                    ],
                )
            ],
        ),
        6,
        (
            "02740267000000000000000b000300000005026d00020102030405060708090a0b0c0d0e0f1002"
            "000000020000000000000063000000040278000000"
        ),
    ),
    (
        TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC_ID,
                    partitions=[TxnOffsetCommitResponsePartition(partition_index=2, error_code=100)],
                )
            ]
        ),
        6,
        "00000000020102030405060708090a0b0c0d0e0f1002000000020064000000",
    ),
    (
        DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id="g", error_code=68, error_message="no"),
                DeletableGroupResult(group_id="h"),
            ]
        ),
        3,
        "000000000302670044036e6f0002680000000000",
    ),
]


@pytest.mark.parametrize(
    ("message", "version", "written"), CASES, ids=lambda each: type(each).__name__ if each else "-"
)
def test_the_bytes_are_those_of_the_newest_java_client(message: Message, version: int, written: str) -> None:
    data = bytes.fromhex(written)
    assert message.encode(version) == data
    assert type(message).decode(data, version) == (message, len(data))
