"""Kafka keys that this broker rejects, because it cannot honour them.

A broker that ignored them would not be the one that its operator asked for. So each is rejected, with the
reason and what to write instead. `kraft_properties` takes the keys of KRaft that a broker can do without out
of a properties file before.
"""

from __future__ import annotations

_KRAFT = (
    "it belongs to KRaft, and this broker keeps its metadata in ZooKeeper or, on its own, in an embedded"
    " store; remove it"
)

_KRAFT_KEYS = {
    "process.roles": "; a server that is not a broker is not part of this version",
    "node.id": "; the id of the broker is broker.id",
    "controller.quorum.voters": "; a cluster is named by zookeeper.connect",
    "controller.quorum.bootstrap.servers": "; a cluster is named by zookeeper.connect",
    "controller.listener.names": "; the listener between brokers is inter.broker.listener.name",
    "sasl.mechanism.controller.protocol": "; between brokers it is sasl.mechanism.inter.broker.protocol",
    "early.start.listeners": "",
    "initial.broker.registration.timeout.ms": "; see zookeeper.connection.timeout.ms",
    "broker.heartbeat.interval.ms": "; see zookeeper.session.timeout.ms",
    "broker.session.timeout.ms": "; see zookeeper.session.timeout.ms",
    "server.max.startup.time.ms": "",
    "metadata.log.dir": "",
    "zookeeper.metadata.migration.enable": "",
    "zookeeper.metadata.migration.min.batch.size": "",
    "eligible.leader.replicas.enable": "",
    "unstable.api.versions.enable": "",
    "unstable.feature.versions.enable": "",
}

_KRAFT_PREFIXES = ("controller.quorum.", "metadata.log.", "metadata.max.")

_REMOVED_KEYS = {
    "advertised.host.name": "Kafka removed it in 3.0; use advertised.listeners",
    "advertised.port": "Kafka removed it in 3.0; use advertised.listeners",
    "host.name": "Kafka removed it in 3.0; use listeners",
    "port": "Kafka removed it in 3.0; use listeners",
    "log.cleaner.min.cleanable.dirty.ratio": "its name is log.cleaner.min.cleanable.ratio",
    "quota.producer.default": "Kafka removed it in 3.0; set a default client quota",
    "quota.consumer.default": "Kafka removed it in 3.0; set a default client quota",
}

_TIERED = "tiered storage is not part of this broker; remove it"

_TIERED_PREFIXES = ("remote.log.", "remote.fetch.", "log.local.retention.", "rsm.config.", "rlmm.config.")

_SHARE = "share groups are not part of this broker; remove it"

_SHARE_PREFIXES = ("group.share.", "share.coordinator.")


def refusal(name: str) -> str | None:
    """Reason for the rejection of the key `name`; None if it is not rejected here."""
    if name in _REMOVED_KEYS:
        return _REMOVED_KEYS[name]
    if name in _KRAFT_KEYS:
        return _KRAFT + _KRAFT_KEYS[name]
    if name.startswith(_KRAFT_PREFIXES):
        return _KRAFT
    if name.startswith(_TIERED_PREFIXES):
        return _TIERED
    if name.startswith(_SHARE_PREFIXES):
        return _SHARE
    return None
