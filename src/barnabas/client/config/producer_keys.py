"""Keys of the producer. Names, defaults and bounds are those of Apache Kafka 4."""

from __future__ import annotations

from typing import Final

from barnabas.client.config.common import COMMON, INT_MAX
from barnabas.config.definitions.keys import ConfigType, Definition, Key, at_least, between, one_of

PRODUCER: Final = (
    Key(
        "acks",
        ConfigType.STRING,
        "all",
        one_of("all", "-1", "0", "1"),
        doc="Replicas that must have a record before it is acknowledged: all in-sync ones, the leader, none.",
    ),
    Key(
        "enable.idempotence",
        ConfigType.BOOLEAN,
        None,
        doc="Batches carry sequence numbers, so that a batch sent twice is written once. The default is "
        "true, unless acks, retries or the requests in flight rule it out.",
    ),
    Key(
        "linger.ms",
        ConfigType.LONG,
        5,
        at_least(0),
        doc="A batch waits this long for more records, unless it is full.",
    ),
    Key(
        "batch.size",
        ConfigType.INT,
        16_384,
        at_least(0),
        doc="A batch is sent when it has this many bytes. A larger record is a batch of its own.",
    ),
    Key(
        "buffer.memory",
        ConfigType.LONG,
        32 * 1024 * 1024,
        at_least(0),
        doc="Bound on the memory of records that are not acknowledged yet. send() waits while it is used up.",
    ),
    Key(
        "max.block.ms",
        ConfigType.LONG,
        60_000,
        at_least(0),
        doc="Longest wait of send() for memory or metadata, and of the transaction's calls.",
    ),
    Key(
        "max.request.size",
        ConfigType.INT,
        1024 * 1024,
        at_least(0),
        doc="Largest record, and largest request. A larger record is refused with RECORD_TOO_LARGE.",
    ),
    Key(
        "delivery.timeout.ms",
        ConfigType.INT,
        120_000,
        at_least(0),
        doc="A record is acknowledged or has failed after this time, retries included.",
    ),
    Key(
        "retries",
        ConfigType.INT,
        INT_MAX,
        between(0, INT_MAX),
        doc="How often a batch is sent again. Leave it, and set delivery.timeout.ms.",
    ),
    Key(
        "max.in.flight.requests.per.connection",
        ConfigType.INT,
        5,
        at_least(1),
        doc="Requests to one broker without an answer yet. An idempotent producer has at most 5.",
    ),
    Key(
        "compression.type",
        ConfigType.STRING,
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        doc="Codec of the batches.",
    ),
    Key("compression.gzip.level", ConfigType.INT, None, between(-1, 9), doc="Level of gzip; -1: its own."),
    Key("compression.lz4.level", ConfigType.INT, None, between(1, 17), doc="Level of lz4."),
    Key("compression.zstd.level", ConfigType.INT, None, between(-131_072, 22), doc="Level of zstd."),
    Key(
        "transactional.id",
        ConfigType.STRING,
        None,
        doc="Name of a transactional producer. A restarted producer fences the old one of its name.",
    ),
    Key(
        "transaction.timeout.ms",
        ConfigType.INT,
        60_000,
        at_least(1),
        doc="The coordinator aborts a transaction that is open for longer.",
    ),
    Key(
        "partitioner.ignore.keys",
        ConfigType.BOOLEAN,
        False,
        doc="Records with a key are spread like those without one.",
    ),
    Key(
        "partitioner.adaptive.partitioning.enable",
        ConfigType.BOOLEAN,
        True,
        doc="Records without a key go less often to partitions with long queues.",
    ),
    Key(
        "partitioner.class",
        ConfigType.STRING,
        None,
        doc="murmur2 (keys by hash, the others sticky) or round-robin. Keywords take a function too.",
    ),
    Key(
        "metadata.max.idle.ms",
        ConfigType.LONG,
        300_000,
        at_least(5_000),
        doc="A topic without records for this long is no longer refreshed.",
    ),
    Key("key.serializer", ConfigType.STRING, None, doc="bytes, string, json; keywords take functions."),
    Key("value.serializer", ConfigType.STRING, None, doc="bytes, string, json; keywords take functions."),
)

PRODUCER_KEYS: Final = Definition((*PRODUCER, *COMMON))
