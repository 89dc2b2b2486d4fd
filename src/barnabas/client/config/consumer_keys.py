"""Keys of the consumer. Names, defaults and bounds are those of Apache Kafka 4."""

from __future__ import annotations

from typing import Final

from barnabas.client.config.common import COMMON, INT_MAX
from barnabas.config.definitions.keys import ConfigType, Definition, Key, at_least, between, one_of

GROUP: Final = (
    Key("group.id", ConfigType.STRING, None, doc="Consumer group whose members share the partitions."),
    Key(
        "group.instance.id",
        ConfigType.STRING,
        None,
        doc="Name of a static member. A restart within the session timeout then causes no rebalance.",
    ),
    Key(
        "group.protocol",
        ConfigType.STRING,
        None,
        one_of("classic", "consumer"),
        doc="Rebalance protocol. Without it, consumer (KIP-848) where the broker has it, else classic.",
    ),
    Key(
        "group.remote.assignor",
        ConfigType.STRING,
        None,
        doc="Assignor of the broker (uniform, range), for the consumer protocol.",
    ),
    Key(
        "partition.assignment.strategy",
        ConfigType.LIST,
        ["range", "cooperative-sticky"],
        one_of("range", "roundrobin", "sticky", "cooperative-sticky"),
        doc="Assignors of the classic protocol, in order of preference.",
    ),
    Key(
        "session.timeout.ms",
        ConfigType.INT,
        45_000,
        at_least(1),
        doc="A member without a heartbeat for this long leaves the group. For the classic protocol.",
    ),
    Key(
        "heartbeat.interval.ms",
        ConfigType.INT,
        3_000,
        at_least(1),
        doc="Pause between heartbeats, below a third of the session timeout. For the classic protocol.",
    ),
    Key(
        "max.poll.interval.ms",
        ConfigType.INT,
        300_000,
        at_least(1),
        doc="A member that takes no records for this long leaves the group.",
    ),
)

OFFSETS: Final = (
    Key(
        "auto.offset.reset",
        ConfigType.STRING,
        "latest",
        doc="Position without a committed offset: earliest, latest, none, or by_duration:PT1H.",
    ),
    Key(
        "enable.auto.commit",
        ConfigType.BOOLEAN,
        True,
        doc="Offsets of records that were handed out earlier are committed in the background.",
    ),
    Key("auto.commit.interval.ms", ConfigType.INT, 5_000, at_least(0), doc="Time between commits."),
    Key(
        "isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        doc="read_committed hands out no records of open and aborted transactions.",
    ),
    Key(
        "default.api.timeout.ms",
        ConfigType.INT,
        60_000,
        at_least(0),
        doc="Longest wait of calls that take no timeout.",
    ),
)

FETCHING: Final = (
    Key(
        "fetch.min.bytes",
        ConfigType.INT,
        1,
        at_least(0),
        doc="A broker waits for this many bytes, up to fetch.max.wait.ms.",
    ),
    Key(
        "fetch.max.bytes",
        ConfigType.INT,
        50 * 1024 * 1024,
        at_least(0),
        doc="Largest answer to a fetch; one batch comes even if it is larger.",
    ),
    Key(
        "fetch.max.wait.ms",
        ConfigType.INT,
        500,
        at_least(0),
        doc="Longest wait of a broker for fetch.min.bytes.",
    ),
    Key(
        "max.partition.fetch.bytes",
        ConfigType.INT,
        1024 * 1024,
        at_least(0),
        doc="Largest share of a partition in an answer; one batch comes even if it is larger.",
    ),
    Key("max.poll.records", ConfigType.INT, 500, between(1, INT_MAX), doc="Most records of one batch."),
    Key(
        "fetch.buffer.bytes",
        ConfigType.LONG,
        64 * 1024 * 1024,
        at_least(0),
        doc="Bound on the memory of fetched records that were not handed out yet. Not a key of Kafka.",
    ),
    Key("check.crcs", ConfigType.BOOLEAN, True, doc="The checksum of each batch is checked."),
    Key("client.rack", ConfigType.STRING, "", doc="Rack of this client: it reads from the nearest replica."),
    Key(
        "allow.auto.create.topics",
        ConfigType.BOOLEAN,
        True,
        doc="A subscription may create a topic, where the broker allows it.",
    ),
    Key(
        "exclude.internal.topics",
        ConfigType.BOOLEAN,
        True,
        doc="A pattern does not match internal topics.",
    ),
    Key("key.deserializer", ConfigType.STRING, None, doc="bytes, string, json; keywords take functions."),
    Key("value.deserializer", ConfigType.STRING, None, doc="bytes, string, json; keywords take functions."),
)

CONSUMER_KEYS: Final = Definition((*GROUP, *OFFSETS, *FETCHING, *COMMON))
