"""Kafka client library: producer, consumer and admin client for Barnabas and Apache Kafka.

    from barnabas.client import Producer

The names of `__all__` are the public interface (`docs/CLIENT.md`). They are imported at first use: the
connector for Spark uses parts of this package without asyncio.

- `config`: settings, under Kafka's property names.
- `core`: the protocol without I/O. `session` and `frames` are one connection, `cluster_state` and `metadata`
  are the cluster. `steps` are conversations with a cluster as generators, `retries` is their retry policy.
- `aio`: the asyncio shell. `cluster_client` is the base of every client; brokers use its `channel` between
  themselves.
- `blocking`: a connection on a plain socket, for the Spark connector, which imports nothing of asyncio.
- `producer`: the producer; its `core` has the machines without I/O.
- `admin`: the admin client, on administrative requests by subject.
- `extensions`: serializers, interceptors, metrics, and the records that applications see.
- `security`: TLS and SASL settings of clients.
- `sync`: the same clients without `await`, on one loop in a background thread.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.admin.calls.per_resource import SomeFailed
    from barnabas.client.admin.calls.topics import NewPartitions, NewTopic
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.listener import RebalanceListener
    from barnabas.client.core.client_errors import (
        BackgroundFailed,
        ClientClosed,
        CommitFailed,
        DeserializationFailed,
        IllegalState,
        LogTruncated,
        NoCommittedOffset,
        SendCancelled,
        TransactionAborted,
    )
    from barnabas.client.core.offsets import CommittedOffset, GroupMetadata, OffsetAndTime
    from barnabas.client.core.steps import ClusterUnreachable
    from barnabas.client.extensions.interceptors import ConsumerInterceptor, ProducerInterceptor
    from barnabas.client.extensions.records import ProducerRecord, Record, RecordMetadata
    from barnabas.client.extensions.serializers import Deserializer, SerializationError, Serializer
    from barnabas.client.processing.core.retry_policy import Retry
    from barnabas.client.producer.producer import Producer
    from barnabas.core.errors import KafkaError
    from barnabas.core.ids import TopicPartition

_PLACES = {
    "Admin": "barnabas.client.admin.admin",
    "ClientClosed": "barnabas.client.core.client_errors",
    "BackgroundFailed": "barnabas.client.core.client_errors",
    "CommitFailed": "barnabas.client.core.client_errors",
    "CommittedOffset": "barnabas.client.core.offsets",
    "Consumer": "barnabas.client.consumer.consumer",
    "DeserializationFailed": "barnabas.client.core.client_errors",
    "GroupMetadata": "barnabas.client.core.offsets",
    "LogTruncated": "barnabas.client.core.client_errors",
    "NoCommittedOffset": "barnabas.client.core.client_errors",
    "OffsetAndTime": "barnabas.client.core.offsets",
    "RebalanceListener": "barnabas.client.consumer.listener",
    "Retry": "barnabas.client.processing.core.retry_policy",
    "ClusterUnreachable": "barnabas.client.core.steps",
    "ConsumerInterceptor": "barnabas.client.extensions.interceptors",
    "Deserializer": "barnabas.client.extensions.serializers",
    "IllegalState": "barnabas.client.core.client_errors",
    "KafkaError": "barnabas.core.errors",
    "NewPartitions": "barnabas.client.admin.calls.topics",
    "NewTopic": "barnabas.client.admin.calls.topics",
    "Producer": "barnabas.client.producer.producer",
    "ProducerInterceptor": "barnabas.client.extensions.interceptors",
    "ProducerRecord": "barnabas.client.extensions.records",
    "Record": "barnabas.client.extensions.records",
    "RecordMetadata": "barnabas.client.extensions.records",
    "SendCancelled": "barnabas.client.core.client_errors",
    "SerializationError": "barnabas.client.extensions.serializers",
    "Serializer": "barnabas.client.extensions.serializers",
    "SomeFailed": "barnabas.client.admin.calls.per_resource",
    "TopicPartition": "barnabas.core.ids",
    "TransactionAborted": "barnabas.client.core.client_errors",
}

__all__ = [
    "Admin",
    "BackgroundFailed",
    "ClientClosed",
    "ClusterUnreachable",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerInterceptor",
    "DeserializationFailed",
    "Deserializer",
    "GroupMetadata",
    "IllegalState",
    "KafkaError",
    "LogTruncated",
    "NewPartitions",
    "NewTopic",
    "NoCommittedOffset",
    "OffsetAndTime",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Retry",
    "SendCancelled",
    "SerializationError",
    "Serializer",
    "SomeFailed",
    "TopicPartition",
    "TransactionAborted",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
