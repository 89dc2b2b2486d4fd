"""Consumer groups, transactions and quotas.

The coordinators' topics are created with three replicas by default, as in Kafka. A smaller cluster creates
them with as many replicas as it has brokers, unless the key is set:
`BrokerConfig.internal_replication_factor`.
"""

from __future__ import annotations

from barnabas.config.definitions.keys import Key, at_least, between, one_of
from barnabas.config.definitions.shorthand import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    DAY_MS,
    HOUR_MS,
    INT,
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
from barnabas.core.integers import INT_MAX

GROUPS: tuple[Key, ...] = (
    Key("group.min.session.timeout.ms", INT, 6 * SECOND_MS,
        doc="The shortest session timeout that a member may ask for."),
    Key("group.max.session.timeout.ms", INT, 30 * MINUTE_MS,
        doc="The longest session timeout that a member may ask for."),
    Key("group.initial.rebalance.delay.ms", INT, 3 * SECOND_MS,
        doc="Time that an empty group waits for more members before its first rebalance."),
    Key("group.max.size", INT, INT_MAX, at_least(1),
        doc="The most members of one group."),
    Key("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), one_of("classic", "consumer"),
        doc="The rebalance protocols that the broker offers to members."),
    Key("group.coordinator.threads", INT, 1, at_least(1),
        doc=NO_EFFECT + "The coordinator runs on the one event loop."),
    Key("group.coordinator.append.linger.ms", INT, 10, at_least(0),
        doc=NO_EFFECT + "The coordinator does not delay its writes."),
    Key("group.consumer.session.timeout.ms", INT, 45 * SECOND_MS, at_least(1),
        doc="Consumer protocol: a member that was silent for this long is removed."),
    Key("group.consumer.min.session.timeout.ms", INT, 45 * SECOND_MS, at_least(1),
        doc="The shortest such time that a group may set."),
    Key("group.consumer.max.session.timeout.ms", INT, 60 * SECOND_MS, at_least(1),
        doc="The longest such time that a group may set."),
    Key("group.consumer.heartbeat.interval.ms", INT, 5 * SECOND_MS, at_least(1),
        doc="Consumer protocol: the heartbeat interval that the broker gives to members."),
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
        doc="The broker's assignors, by the names of Kafka's classes; the first is the default."),
    Key("group.consumer.migration.policy", STRING, "disabled",
        one_of("disabled", "upgrade", "downgrade", "bidirectional"),
        doc="Whether a group may move between the two protocols while it is in use."),
)  # fmt: skip

OFFSETS: tuple[Key, ...] = (
    Key("offset.metadata.max.bytes", INT, 4 * KIB,
        doc="The longest note that a client may attach to a committed offset."),
    Key("offsets.load.buffer.size", INT, 5 * MIB, at_least(1),
        doc="Bytes of the offsets topic that a new coordinator reads at a time."),
    Key("offsets.topic.replication.factor", SHORT, 3, at_least(1),
        doc="Replicas of the offsets topic. A smaller cluster uses as many as it has brokers, unless this"
        " is set."),
    Key("offsets.topic.num.partitions", INT, 50, at_least(1),
        doc="Partitions of the offsets topic; do not change it once the topic exists."),
    Key("offsets.topic.segment.bytes", INT, 100 * MIB, at_least(1),
        doc="Segment size of the offsets topic."),
    Key("offsets.topic.compression.codec", INT, 0, between(0, 4),
        doc="Compression of the offsets topic, by Kafka's number of the codec; 0 is none."),
    Key("offsets.retention.minutes", INT, 7 * 24 * 60, at_least(1),
        doc="Time for which offsets outlive their group or, without a group, their commit."),
    Key("offsets.retention.check.interval.ms", LONG, 10 * MINUTE_MS, at_least(1),
        doc="Interval of the search for expired offsets."),
    Key("offsets.commit.timeout.ms", INT, 5 * SECOND_MS, at_least(1),
        doc="The longest that a commit waits for replication."),
    Key("offsets.commit.required.acks", SHORT, -1, between(-1, 1),
        doc=NO_EFFECT + "A commit always waits for all in-sync replicas."),
)  # fmt: skip

TRANSACTIONS: tuple[Key, ...] = (
    Key("transaction.max.timeout.ms", INT, 15 * MINUTE_MS, at_least(1),
        doc="The longest transaction timeout that a producer may ask for."),
    Key("transactional.id.expiration.ms", INT, 7 * DAY_MS, at_least(1),
        doc="A transactional id that is unused for this long is removed."),
    Key("transaction.state.log.replication.factor", SHORT, 3, at_least(1),
        doc="Replicas of the transaction topic. A smaller cluster uses as many as it has brokers, unless"
        " this is set."),
    Key("transaction.state.log.num.partitions", INT, 50, at_least(1),
        doc="Partitions of the transaction topic; do not change it once the topic exists."),
    Key("transaction.state.log.min.isr", INT, 2, at_least(1),
        doc="`min.insync.replicas` of the transaction topic; never more than its replicas, unless this is"
        " set."),
    Key("transaction.state.log.segment.bytes", INT, 100 * MIB, at_least(1),
        doc="Segment size of the transaction topic."),
    Key("transaction.state.log.load.buffer.size", INT, 5 * MIB, at_least(1),
        doc="Bytes of the transaction topic that a new coordinator reads at a time."),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10 * SECOND_MS, at_least(1),
        doc="Interval of the search for timed-out transactions."),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, HOUR_MS, at_least(1),
        doc="Interval of the search for expired transactional ids."),
    Key("transaction.partition.verification.enable", BOOLEAN, True, None, CLUSTER_WIDE,
        "Whether a transactional write is checked against its transaction before it is appended."),
    Key("producer.id.expiration.ms", INT, DAY_MS, at_least(1), CLUSTER_WIDE,
        "Time after which a partition removes an idle producer's state."),
    Key("producer.id.expiration.check.interval.ms", INT, 10 * MINUTE_MS, at_least(1),
        doc="Interval of the search for expired producers."),
)  # fmt: skip

QUOTAS: tuple[Key, ...] = (
    Key("quota.window.num", INT, 11, at_least(1),
        doc="Number of windows over which the rates of clients are measured."),
    Key("quota.window.size.seconds", INT, 1, at_least(1),
        doc="Length of each window."),
    Key("replication.quota.window.num", INT, 11, at_least(1),
        doc=NO_EFFECT + "The rate of replication is measured over eleven seconds."),
    Key("replication.quota.window.size.seconds", INT, 1, at_least(1),
        doc=NO_EFFECT + "The rate of replication is measured over eleven seconds."),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1),
        doc=NO_EFFECT + "Moves between directories have no quota."),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1),
        doc=NO_EFFECT + "Moves between directories have no quota."),
    Key("controller.quota.window.num", INT, 11, at_least(1),
        doc="Number of windows; an idle client may make the topic changes of all of them at once."),
    Key("controller.quota.window.size.seconds", INT, 1, at_least(1),
        doc="Length of each window."),
    Key("client.quota.callback.class", CLASS, None,
        doc=NO_EFFECT + "It names a Java class."),
)  # fmt: skip
