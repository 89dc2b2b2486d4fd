"""Kafka's ConsumerProtocol: subscriptions inside JoinGroup, assignments inside SyncGroup.

Of a classic group the broker needs only the topics it reads: their offsets are neither expired nor deleted. A
subscription that cannot be read means that nothing is known. For groups with members of both protocols, or in
conversion, both are read and written (`mixed_protocol`, `conversion`).
"""

from __future__ import annotations

import struct

from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION = struct.Struct(">h")


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A newer version than the newest known one is read as that one."""
    version = decode_version(metadata)
    newest = ConsumerProtocolSubscription.supported_versions()[-1]
    subscription, _ = ConsumerProtocolSubscription.decode(metadata, min(version, newest), _VERSION.size)
    return subscription


def decode_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    version = decode_version(assignment)
    newest = ConsumerProtocolAssignment.supported_versions()[-1]
    decoded, _ = ConsumerProtocolAssignment.decode(assignment, min(version, newest), _VERSION.size)
    return decoded


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    version = min(version, ConsumerProtocolAssignment.supported_versions()[-1])
    return _VERSION.pack(version) + assignment.encode(version)


def decode_version(metadata: bytes) -> int:
    if len(metadata) < _VERSION.size:
        raise MalformedMessage("the subscription has no version")
    version: int = _VERSION.unpack_from(metadata)[0]
    if version < 0:
        raise MalformedMessage(f"the subscription has the unknown version {version}")
    return version


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a subscription, None if it cannot be read."""
    try:
        return frozenset(decode_subscription(metadata).topics)
    except MalformedMessage:
        return None
