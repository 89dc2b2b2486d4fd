"""Features that each client is tested for, and the APIs that the broker must serve for them.

A feature whose APIs the broker does not advertise is tried all the same, with short timeouts, and reported as
not yet. Once they are advertised it must work, and no list has to be changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support import wire

PATIENCE_MS = 60_000
LITTLE_PATIENCE_MS = 6_000
JOIN_GROUP, OFFSET_COMMIT, ADD_PARTITIONS_TO_TXN, TXN_OFFSET_COMMIT = 11, 8, 24, 28
CONSUMER_GROUP_HEARTBEAT = 68


@dataclass(frozen=True, slots=True)
class Feature:
    """`name` is the word that programs in other languages know it by."""

    name: str
    title: str
    needs: frozenset[int] = frozenset()


FEATURES: tuple[Feature, ...] = (
    Feature("connect", "connect, ApiVersions"),
    Feature("create-topic", "create topic"),
    Feature("describe-topic", "describe topic"),
    Feature("codec-none", "produce, no codec"),
    Feature("codec-gzip", "produce gzip"),
    Feature("codec-snappy", "produce snappy"),
    Feature("codec-lz4", "produce lz4"),
    Feature("codec-zstd", "produce zstd"),
    Feature("idempotence", "idempotent produce"),
    Feature("assign", "consume assigned partitions"),
    Feature("headers", "keys, headers, nulls"),
    Feature("timestamps", "timestamps"),
    Feature("offsets-for-times", "offsets for times"),
    Feature("list-offsets", "list offsets"),
    Feature("describe-configs", "describe configs"),
    Feature("alter-configs", "alter configs"),
    Feature("create-partitions", "create partitions"),
    Feature("delete-records", "delete records"),
    Feature("delete-topic", "delete topic"),
    Feature("group", "subscribe and commit", frozenset({JOIN_GROUP, OFFSET_COMMIT})),
    Feature(
        "group-consumer-protocol", "the same, KIP-848", frozenset({CONSUMER_GROUP_HEARTBEAT, OFFSET_COMMIT})
    ),
    Feature("transaction", "transactions", frozenset({ADD_PARTITIONS_TO_TXN, JOIN_GROUP})),
    Feature("transaction-offsets", "offsets in a transaction", frozenset({JOIN_GROUP, TXN_OFFSET_COMMIT})),
)
BY_NAME = {feature.name: feature for feature in FEATURES}


def advertised_apis(host: str, port: int) -> frozenset[int]:
    with wire.WireConnection(host, port) as connection:
        answer = connection.ask(wire.API_VERSIONS, 0, b"")
    error, count = answer.unpack("hi")
    assert error == 0, f"error {error} answering ApiVersions v0"
    return frozenset(answer.unpack("hhh")[0] for _ in range(count))
