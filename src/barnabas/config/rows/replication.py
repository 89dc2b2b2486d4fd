"""Replicas, leaders, and the ZooKeeper that brokers agree through."""

from __future__ import annotations

from barnabas.config.keys import Key, at_least
from barnabas.config.rows.words import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    KIB,
    LIST,
    LONG,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    NO_EFFECT,
    PASSWORD,
    PER_BROKER,
    SECOND_MS,
    STRING,
)

REPLICATION = (
    Key(
        "min.insync.replicas", INT, 1, at_least(1), CLUSTER_WIDE,
        "With acks=all, a write is refused when fewer replicas than this are in sync.",
    ),
    Key(
        "replica.lag.time.max.ms", LONG, 30 * SECOND_MS, at_least(1),
        doc="A follower that has not caught up for this long leaves the ISR.",
    ),
    Key(
        "replica.socket.timeout.ms", INT, 30 * SECOND_MS, at_least(1),
        doc="How long a follower waits for its leader; at least `replica.fetch.wait.max.ms`.",
    ),
    Key(
        "replica.socket.receive.buffer.bytes", INT, 64 * KIB, at_least(-1),
        doc=NO_EFFECT + "The operating system adapts the buffer of a follower's connection.",
    ),
    Key(
        "replica.fetch.max.bytes", INT, MIB, at_least(0),
        doc="What a follower asks for from one partition; a larger first batch still comes.",
    ),
    Key(
        "replica.fetch.response.max.bytes", INT, 10 * MIB, at_least(0),
        doc="What a follower asks for over all partitions.",
    ),
    Key(
        "replica.fetch.wait.max.ms", INT, 500, at_least(0),
        doc="How long a leader may hold a follower's fetch; at most `replica.lag.time.max.ms`.",
    ),
    Key(
        "replica.fetch.min.bytes", INT, 1, at_least(0),
        doc="A leader answers a follower as soon as it has this much.",
    ),
    Key(
        "replica.fetch.backoff.ms", INT, SECOND_MS, at_least(0),
        doc="The pause after a partition failed to fetch.",
    ),
    Key(
        "num.replica.fetchers", INT, 1, at_least(1), CLUSTER_WIDE,
        "Connections to each other broker that replicate from it.",
    ),
    Key(
        "leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), PER_BROKER,
        "Bytes a second that throttled replicas may take from this broker.",
        is_shown_unset=False,
    ),
    Key(
        "follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), PER_BROKER,
        "Bytes a second that throttled replicas of this broker may fetch.",
        is_shown_unset=False,
    ),
    Key(
        "replica.high.watermark.checkpoint.interval.ms", LONG, 5 * SECOND_MS, at_least(1),
        doc="How often high watermarks are written down.",
    ),
    Key(
        "replica.selector.class", STRING, None,
        doc="Which replica a consumer reads from. Only the names of Kafka's own selectors are known:"
        " LeaderSelector and RackAwareReplicaSelector.",
    ),
    Key(
        "fetch.purgatory.purge.interval.requests", INT, 1_000, at_least(0),
        doc="How many fetches that are answered may stay in the lists of those that wait before the lists are"
        " swept.",
    ),
    Key(
        "producer.purgatory.purge.interval.requests", INT, 1_000, at_least(0),
        doc="The same for writes that wait for their replicas.",
    ),
    Key(
        "delete.records.purgatory.purge.interval.requests", INT, 1, at_least(0),
        doc="The same for deletions of records.",
    ),
    Key(
        "inter.broker.protocol.version", STRING, "3.9-IV0",
        doc=NO_EFFECT + "Brokers agree on versions by asking each other.",
    ),
)  # fmt: skip

LEADERS = (
    Key(
        "auto.leader.rebalance.enable", BOOLEAN, True,
        doc="Whether leadership returns to the preferred replicas by itself.",
    ),
    Key(
        "leader.imbalance.per.broker.percentage", INT, 10, at_least(0),
        doc="The share of a broker's partitions led elsewhere that sets off that return.",
    ),
    Key(
        "leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
        doc="How often the balance is looked at.",
    ),
    Key(
        "unclean.leader.election.enable", BOOLEAN, False, None, CLUSTER_WIDE,
        "Whether a replica outside the ISR may lead when no other is left: available again, with data lost.",
    ),
    Key(
        "unclean.leader.election.interval.ms", LONG, 5 * MINUTE_MS, at_least(1),
        doc=NO_EFFECT + "Such an election is held when a broker comes or goes and when the setting changes.",
    ),
    Key(
        "controller.socket.timeout.ms", INT, 30 * SECOND_MS, at_least(1),
        doc="How long the controller waits for a broker's answer.",
    ),
)  # fmt: skip

ZOOKEEPER = (
    Key(
        "zookeeper.connect", STRING, None,
        doc="The ensemble, HOST:PORT separated by commas, with an optional /chroot at the end, which is made."
        " `local` runs a ZooKeeper beside the broker, in its data directory. Unset means one broker on its"
        " own with the embedded store; Apache Kafka demands a value.",
    ),
    Key(
        "zookeeper.auth", PASSWORD, None,
        doc="Credentials for ZooKeeper, USER:PASSWORD, by its digest scheme. Not a key of Apache Kafka, which"
        " takes them from a JAAS file.",
    ),
    Key(
        "zookeeper.session.timeout.ms", INT, 18 * SECOND_MS, at_least(1),
        doc="A broker that ZooKeeper has not heard of for this long is taken for dead.",
    ),
    Key(
        "zookeeper.connection.timeout.ms", INT, None, at_least(1),
        doc="How long start-up waits for ZooKeeper; unset means the session timeout.",
    ),
    Key(
        "zookeeper.set.acl", BOOLEAN, False,
        doc="Whether znodes belong to the credentials in `zookeeper.auth`: everybody may read them, except"
        " secrets, and only brokers may change them.",
    ),
    Key(
        "zookeeper.max.in.flight.requests", INT, 10, at_least(1),
        doc=NO_EFFECT + "A hundred requests to ZooKeeper may be unanswered at once.",
    ),
    Key(
        "zookeeper.ssl.client.enable", BOOLEAN, False,
        doc="Whether the connection to ZooKeeper is encrypted.",
    ),
    Key(
        "zookeeper.clientCnxnSocket", STRING, None,
        doc=NO_EFFECT + "It names a Java class.",
    ),
    Key(
        "zookeeper.ssl.keystore.location", STRING, None,
        doc="The broker's key and certificate for ZooKeeper.",
    ),
    Key(
        "zookeeper.ssl.keystore.password", PASSWORD, None,
        doc="The password of that file.",
    ),
    Key(
        "zookeeper.ssl.keystore.type", STRING, None,
        doc="The format of that file.",
    ),
    Key(
        "zookeeper.ssl.truststore.location", STRING, None,
        doc="The certificates that ZooKeeper's certificate is checked against.",
    ),
    Key(
        "zookeeper.ssl.truststore.password", PASSWORD, None,
        doc="The password of that file.",
    ),
    Key(
        "zookeeper.ssl.truststore.type", STRING, None,
        doc="The format of that file.",
    ),
    Key(
        "zookeeper.ssl.protocol", STRING, "TLSv1.2",
        doc="The protocol that negotiation starts from.",
    ),
    Key(
        "zookeeper.ssl.enabled.protocols", LIST, None,
        doc="The protocols that may be agreed on.",
    ),
    Key(
        "zookeeper.ssl.cipher.suites", LIST, None,
        doc="The cipher suites that may be agreed on.",
    ),
    Key(
        "zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
        doc="How ZooKeeper's host name is checked; empty does not check it.",
    ),
    Key(
        "zookeeper.ssl.crl.enable", BOOLEAN, False,
        doc="Whether revocation lists are consulted.",
    ),
    Key(
        "zookeeper.ssl.ocsp.enable", BOOLEAN, False,
        doc="Whether revocation is asked for online.",
    ),
)  # fmt: skip
