"""Keys of other clients, and what to write here instead: a refusal of one of them says so.

Suggestions by likeness find a slip of the pen. librdkafka, kafka-python and aiokafka have names of their own
for the same settings, which look like nothing here.
"""

from __future__ import annotations

from typing import Final

from barnabas.config.definitions.keys import Definition, Key
from barnabas.core.errors import InvalidConfig

INSTEAD: Final = {
    # Java
    "interceptor.classes": "the argument `interceptors`, a list of objects",
    "config.providers": "`file` and `environment`, which take values from elsewhere",
    # librdkafka
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.kbytes": "buffer.memory",
    "batch.num.messages": "batch.size, in bytes",
    "message.send.max.retries": "delivery.timeout.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
    "request.required.acks": "acks",
    "compression.codec": "compression.type",
    "compression.level": "compression.gzip.level, compression.lz4.level or compression.zstd.level",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "partitioner": "partitioner.class",
    "sticky.partitioning.linger.ms": "linger.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "topic.blacklist": "a pattern of `subscribe`",
    "enable.auto.offset.store": "`process`, which acknowledges single records",
    "queued.min.messages": "fetch.buffer.bytes",
    "queued.max.messages.kbytes": "fetch.buffer.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "enable.partition.eof": "`position` and `end_offsets`",
    "statistics.interval.ms": "`producer.metrics`",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "enable.ssl.certificate.verification": "ssl.ca.location",
    # kafka-python and aiokafka, whose keywords have `_` for each dot
    "max.batch.size": "batch.size",
    "consumer.timeout.ms": "the argument `timeout_ms` of `poll`",
    "sasl.plain.username": "sasl.jaas.config",
    "sasl.plain.password": "sasl.jaas.config",
    "ssl.context": "ssl.ca.location, ssl.certificate.location and ssl.key.location",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.keyfile": "ssl.key.location",
    "ssl.check.hostname": "ssl.endpoint.identification.algorithm",
    "api.version": "nothing: versions are negotiated with each broker",
}
"""What to write instead, by the key of another client, with a dot for each `_`."""


def known_key(definition: Definition, name: str) -> Key:
    """The row of a key. INVALID_CONFIG says what to write instead of another client's."""
    instead = INSTEAD.get(name)
    if instead is not None and name not in definition:
        raise InvalidConfig(f"unknown configuration key {name!r}, which another client has; here: {instead}")
    return definition.key(name)
