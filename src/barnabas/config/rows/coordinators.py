"""Consumer groups, transactions and quotas.

The topics of the coordinators are created with three replicas by default, as in Kafka. A
cluster that is smaller creates them with as many replicas as it has brokers, unless the key
was set: see `BrokerConfig.internal_replication_factor`.
"""

from __future__ import annotations

from barnabas.config.keys import Key, at_least, between, one_of
from barnabas.config.rows.words import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DAY_MS,
    HOUR_MS,
    INT,
    INT_MAX,
    KIB,
    LIST,
    LONG,
    MIB,
    MINUTE_MS,
    NO_EFFECT,
    SECOND_MS,
    SHORT,
    STRING,
)

GROUPS: tuple[Key, ...] = (
    Key("group.min.session.timeout.ms", INT, 6 * SECOND_MS,
        doc="The shortest session timeout that a member may ask for."),
    Key("group.max.session.timeout.ms", INT, 30 * MINUTE_MS,
        doc="The longest session timeout that a member may ask for."),
    Key("group.initial.rebalance.delay.ms", INT, 3 * SECOND_MS,
        doc="How long an empty group waits for more members before its first rebalance."),
    Key("group.max.size", INT, INT_MAX, at_least(1),
        doc="The most members of one group."),
    Key("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), one_of("classic", "consumer"),
        doc="The rebalance protocols that are offered to members."),
    Key("group.coordinator.threads", INT, 1, at_least(1),
        doc=NO_EFFECT + "The coordinator runs on the one event loop."),
    Key("group.coordinator.append.linger.ms", INT, 10, at_least(0),
        doc=NO_EFFECT + "The coordinator's writes are not held back."),
    Key("group.consumer.session.timeout.ms", INT, 45 * SECOND_MS, at_least(1),
        doc="Consumer protocol: a member that was silent for this long is removed."),
    Key("group.consumer.min.session.timeout.ms", INT, 45 * SECOND_MS, at_least(1),
        doc="The shortest such time that a group may set."),
    Key("group.consumer.max.session.timeout.ms", INT, 60 * SECOND_MS, at_least(1),
        doc="The longest such time that a group may set."),
    Key("group.consumer.heartbeat.interval.ms", INT, 5 * SECOND_MS, at_least(1),
        doc="Consumer protocol: how often members are told to send a heartbeat."),
    Key("group.consumer.min.heartbeat.interval.ms", INT, 5 * SECOND_MS, at_least(1),
        doc="The shortest interval that a group may set."),
    Key("group.consumer.max.heartbeat.interval.ms", INT, 15 * SECOND_MS, at_least(1),
        doc="The longest interval that a group may set."),
    Key("group.consumer.max.size", INT, INT_MAX, at_least(1),
        doc="The most members of one group of the consumer protocol."),
    Key("group.consumer.assignors", LIST,
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
        doc="The assignors of the broker's side, by the names of Kafka's classes; the first is the default."),
    Key("group.consumer.migration.policy", STRING, "disabled",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
        doc="Whether a group may move between the two protocols while it is in use."),
)  # fmt: skip

OFFSETS: tuple[Key, ...] = (
    Key("offset.metadata.max.bytes", INT, 4 * KIB,
        doc="The longest note that a client may attach to a committed offset."),
    Key("offsets.load.buffer.size", INT, 5 * MIB, at_least(1),
        doc="How much of the offsets topic is read at a time when a coordinator takes over."),
    Key("offsets.topic.replication.factor", SHORT, 3, at_least(1),
        doc="Replicas of the offsets topic. A smaller cluster uses as many as it has brokers, unless this"
        " was set."),
    Key("offsets.topic.num.partitions", INT, 50, at_least(1),
        doc="Partitions of the offsets topic; not to be changed once it exists."),
    Key("offsets.topic.segment.bytes", INT, 100 * MIB, at_least(1),
        doc="Segment size of the offsets topic."),
    Key("offsets.topic.compression.codec", INT, 0, between(0, 4),
        doc="Compression of the offsets topic, by Kafka's number of the codec; 0 is none."),
    Key("offsets.retention.minutes", INT, 7 * 24 * 60, at_least(1),
        doc="How long offsets outlive their group, or, without a group, their commit."),
    Key("offsets.retention.check.interval.ms", LONG, 10 * MINUTE_MS, at_least(1),
        doc="How often expired offsets are looked for."),
    Key("offsets.commit.timeout.ms", INT, 5 * SECOND_MS, at_least(1),
        doc="How long a commit may wait for replication."),
    Key("offsets.commit.required.acks", SHORT, -1, between(-1, 1),
        doc=NO_EFFECT + "A commit always waits for all in-sync replicas."),
)  # fmt: skip

TRANSACTIONS: tuple[Key, ...] = (
    Key("transaction.max.timeout.ms", INT, 15 * MINUTE_MS, at_least(1),
        doc="The longest transaction timeout that a producer may ask for."),
    Key("transactional.id.expiration.ms", INT, 7 * DAY_MS, at_least(1),
        doc="A transactional id that was unused for this long is forgotten."),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1),
        doc="Replicas of the transaction topic. A smaller cluster uses as many as it has brokers, unless"
        " this was set."),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1),
        doc="Partitions of the transaction topic; not to be changed once it exists."),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1),
        doc="`min.insync.replicas` of the transaction topic; never more than the replicas it was created"
        " with, unless this was set."),
    Key("transaction.state.log.segment.bytes", INT, 100 * MIB, at_least(1),
        doc="Segment size of the transaction topic."),
    Key("transaction.state.log.load.buffer.size", INT, 5 * MIB, at_least(1),
        doc="How much of the transaction topic is read at a time when a coordinator takes over."),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10 * SECOND_MS, at_least(1),
        doc="How often transactions that ran out of time are looked for."),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, HOUR_MS, at_least(1),
        doc="How often expired transactional ids are looked for."),
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, CLUSTER_WIDE,
        "Whether a transactional write is checked against its transaction before it is appended."),
    Key("producer.id.expiration.ms", INT, DAY_MS, at_least(1), CLUSTER_WIDE,
        "How long a partition remembers an idle producer."),
    Key("producer.id.expiration.check.interval.ms", INT, 10 * MINUTE_MS, at_least(1),
        doc="How often forgotten producers are looked for."),
)  # fmt: skip

QUOTAS: tuple[Key, ...] = (
    Key("quota.window.num", INT, 11, at_least(1),
        doc="The windows over which the rates of clients are measured."),
    Key("quota.window.size.seconds", INT, 1, at_least(1),
        doc="How long each of them is."),
    Key("replication.quota.window.num", INT, 11, at_least(1),
        doc=NO_EFFECT + "The rate of replication is measured over eleven seconds."),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1),
        doc=NO_EFFECT + "Likewise."),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1),
        doc=NO_EFFECT + "Moves between directories have no quota."),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1),
        doc=NO_EFFECT + "Likewise."),
    Key("controller.quota.window.num", INT, 11, at_least(1),
        doc="The windows whose changes to topics a client may make at once, if it made none before."),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1),
        doc="How long each of them is."),
    Key("client.quota.callback.class", CLASS, None,
        doc=NO_EFFECT + "It names a Java class."),
)  # fmt: skip
