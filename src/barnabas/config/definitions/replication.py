"""Replication, leader elections and ZooKeeper."""

from __future__ import annotations

from barnabas.config.definitions.keys import Key, at_least
from barnabas.config.definitions.shorthand import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    KIB,
    LIST,
    LONG,
    MIB,
    MINUTE_MS,
    NO_EFFECT,
    PASSWORD,
    PER_BROKER,
    SECOND_MS,
    STRING,
)
from barnabas.core.integers import LONG_MAX

REPLICATION: tuple[Key, ...] = (
    Key("min.insync.replicas", INT, 1, at_least(1), CLUSTER_WIDE,
        "With acks=all, a write is rejected when fewer replicas than this are in sync."),
    Key("replica.lag.time.max.ms", LONG, 30 * SECOND_MS, at_least(1),
        doc="A follower that has not caught up for this long leaves the ISR."),
    Key("replica.socket.timeout.ms", INT, 30 * SECOND_MS, at_least(1),
        doc="The longest that a follower waits for its leader; at least `replica.fetch.wait.max.ms`."),
    Key("replica.socket.receive.buffer.bytes", INT, 64 * KIB, at_least(-1),
        doc=NO_EFFECT + "The operating system adapts the buffer of a follower's connection."),
    Key("replica.fetch.max.bytes", INT, MIB, at_least(0),
        doc="Bytes that a follower asks for per partition; a larger first batch is still sent."),
    Key("replica.fetch.response.max.bytes", INT, 10 * MIB, at_least(0),
        doc="Bytes that a follower asks for over all partitions."),
    Key("replica.fetch.wait.max.ms", INT, 500, at_least(0),
        doc="The longest that a leader delays a follower's fetch; at most `replica.lag.time.max.ms`."),
    Key("replica.fetch.min.bytes", INT, 1, at_least(0),
        doc="A leader answers a follower as soon as it has this many bytes."),
    Key("replica.fetch.backoff.ms", INT, SECOND_MS, at_least(0),
        doc="The pause after a failed fetch of a partition."),
    Key("num.replica.fetchers", INT, 1, at_least(1), CLUSTER_WIDE,
        "Connections to each other broker that replicate from it."),
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, at_least(0), PER_BROKER,
        "Bytes a second that throttled replicas may take from this broker.",
        is_shown_unset=False),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, at_least(0), PER_BROKER,
        "Bytes a second that throttled replicas of this broker may fetch.",
        is_shown_unset=False),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5 * SECOND_MS, at_least(1),
        doc="Interval of the checkpoints of high watermarks."),
    Key("replica.selector.class", STRING, None,
        doc="The replica that a consumer reads from. Only the names of Kafka's own selectors are known:"
        " LeaderSelector and RackAwareReplicaSelector."),
    Key("fetch.purgatory.purge.interval.requests", INT, 1_000, at_least(0),
        doc="Answered fetches that may stay in the purgatory's lists before the lists are purged."),
    Key("producer.purgatory.purge.interval.requests", INT, 1_000, at_least(0),
        doc="The same for writes that wait for their replicas."),
    Key("delete.records.purgatory.purge.interval.requests", INT, 1, at_least(0),
        doc="The same for deletions of records."),
    Key("inter.broker.protocol.version", STRING, "3.9-IV0",
        doc=NO_EFFECT + "Brokers agree on versions by asking each other."),
)  # fmt: skip

LEADERS: tuple[Key, ...] = (
    Key("auto.leader.rebalance.enable", BOOLEAN, True,
        doc="Whether leadership returns to the preferred replicas automatically."),
    Key("leader.imbalance.per.broker.percentage", INT, 10, at_least(0),
        doc="The share of a broker's partitions with another leader that starts this return."),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, at_least(1),
        doc="Interval of the check of this balance."),
    Key("unclean.leader.election.enable", BOOLEAN, False, None, CLUSTER_WIDE,
        "Whether a replica outside the ISR may lead when no other is left, with loss of data."),
    Key("unclean.leader.election.interval.ms", LONG, 5 * MINUTE_MS, at_least(1),
        doc=NO_EFFECT + "Such an election runs when a broker starts or stops, and when the setting changes."),
    Key("controller.socket.timeout.ms", INT, 30 * SECOND_MS, at_least(1),
        doc="The longest that the controller waits for a broker's answer."),
)  # fmt: skip

ZOOKEEPER: tuple[Key, ...] = (
    Key("zookeeper.connect", STRING, None,
        doc="The ensemble, HOST:PORT separated by commas, with an optional /chroot, which is created."
        " `local` runs a ZooKeeper beside the broker, in its data directory. Without it and"
        " `coordination.socket` one broker is on its own, with the embedded store; Apache Kafka demands a"
        " value."),
    Key("coordination.socket", STRING, None,
        doc="The socket of the coordination store that the brokers of one machine share, instead of"
        " `zookeeper.connect`. `barnabas start --brokers N` runs that store and sets this key. Not a key of"
        " Apache Kafka."),
    Key("zookeeper.auth", PASSWORD, None,
        doc="Credentials for ZooKeeper, USER:PASSWORD, by its digest scheme. Not a key of Apache Kafka, which"
        " logs in by SASL: see `java.security.auth.login.config`."),
    Key("java.security.auth.login.config", STRING, None,
        doc="A JAAS file, as Apache Kafka gets by the Java property of this name. Its section `Client` has"
        " the broker's name and password for ZooKeeper (DigestLoginModule). `<listener>.KafkaServer` and"
        " `KafkaServer` serve listeners without `sasl.jaas.config`."),
    Key("zookeeper.sasl.client", BOOLEAN, True,
        doc="Whether that section is used, as by ZooKeeper's Java property of this name."),
    Key("zookeeper.sasl.clientconfig", STRING, "Client",
        doc="The name of that section, as by ZooKeeper's Java property of this name."),
    Key("zookeeper.session.timeout.ms", INT, 18 * SECOND_MS, at_least(1),
        doc="ZooKeeper, or the shared store, expires the session of a broker that is silent for this long."),
    Key("zookeeper.connection.timeout.ms", INT, None, at_least(1),
        doc="The longest that the start waits for ZooKeeper or the shared store; unset means the session"
        " timeout."),
    Key("zookeeper.set.acl", BOOLEAN, False,
        doc="Whether znodes get ACLs that let only the brokers' ZooKeeper identity change them, and read"
        " secrets."),
    Key("zookeeper.max.in.flight.requests", INT, 10, at_least(1),
        doc=NO_EFFECT + "A hundred requests to ZooKeeper may be in flight at once."),
    Key("zookeeper.ssl.client.enable", BOOLEAN, False,
        doc="Whether the connection to ZooKeeper is encrypted."),
    Key("zookeeper.clientCnxnSocket", STRING, None,
        doc=NO_EFFECT + "It names a Java class."),
    Key("zookeeper.ssl.keystore.location", STRING, None,
        doc="The broker's key and certificate for ZooKeeper, PEM or PKCS12."),
    Key("zookeeper.ssl.keystore.password", PASSWORD, None,
        doc="The password of that file."),
    Key("zookeeper.ssl.keystore.type", STRING, None,
        doc="The format of that file."),
    Key("zookeeper.ssl.truststore.location", STRING, None,
        doc="The certificates that ZooKeeper's certificate is checked against; unset means the system's."),
    Key("zookeeper.ssl.truststore.password", PASSWORD, None,
        doc="The password of that file."),
    Key("zookeeper.ssl.truststore.type", STRING, None,
        doc="The format of that file."),
    Key("zookeeper.ssl.protocol", STRING, "TLSv1.2",
        doc=NO_EFFECT + "See `zookeeper.ssl.enabled.protocols`."),
    Key("zookeeper.ssl.enabled.protocols", LIST, None,
        doc="The protocols that a handshake may choose."),
    Key("zookeeper.ssl.cipher.suites", LIST, None,
        doc="The cipher suites that a handshake may choose."),
    Key("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
        doc="The check of ZooKeeper's host name; empty disables it."),
    Key("zookeeper.ssl.crl.enable", BOOLEAN, False,
        doc="Whether revocation lists are consulted; true is rejected."),
    Key("zookeeper.ssl.ocsp.enable", BOOLEAN, False,
        doc="Whether revocation is checked online; true is rejected."),
)  # fmt: skip
