"""Identity of the broker, threads, topic defaults, controlled shutdown and metrics."""

from __future__ import annotations

from barnabas.config.definitions.keys import Key, at_least, between, one_of
from barnabas.config.definitions.shorthand import (
    BOOLEAN,
    CLASS,
    CLUSTER_WIDE,
    INT,
    KIB,
    LIST,
    LONG,
    MIB,
    NO_EFFECT,
    SECOND_MS,
    STRING,
)
from barnabas.core.integers import INT_MAX
from barnabas.core.reporting.metrics import SERIES_MAX

IDENTITY: tuple[Key, ...] = (
    Key("broker.id", INT, -1, at_least(-1),
        doc="The id of this broker, unique in its cluster. With -1 one is generated at the first start and"
        " kept in meta.properties."),
    Key("broker.id.generation.enable", BOOLEAN, True,
        doc="Whether a broker without an id may have one generated."),
    Key("reserved.broker.max.id", INT, 1_000, at_least(0),
        doc="The largest id that may be given by hand; generated ids begin above it."),
    Key("broker.rack", STRING, None,
        doc="The rack, or availability zone, of this broker: replicas of a partition are spread over racks,"
        " and consumers may read from a replica in their own."),
)  # fmt: skip

REQUESTS: tuple[Key, ...] = (
    Key("num.io.threads", INT, 8, at_least(1), CLUSTER_WIDE,
        NO_EFFECT + "Requests are handled on the one event loop."),
    Key("num.network.threads", INT, 3, at_least(1), CLUSTER_WIDE,
        NO_EFFECT + "Sockets are served by the one event loop."),
    Key("background.threads", INT, 10, at_least(1), CLUSTER_WIDE,
        "Threads for work that blocks: flushing, deleting and compacting files."),
    Key("num.replica.alter.log.dirs.threads", INT, None,
        doc=NO_EFFECT + "Logs that move between directories take turns on the one event loop."),
    Key("queued.max.requests", INT, 500, at_least(1),
        doc=NO_EFFECT + "The requests in flight of each connection are bounded instead."),
    Key("queued.max.request.bytes", LONG, -1,
        doc="The bytes of large requests that may arrive at once, over all connections; -1 sets no bound."
        " While they are used up, connections with a further large request are not read."),
    Key("request.timeout.ms", INT, 30 * SECOND_MS, at_least(1),
        doc="The longest that this broker waits for the answer of another broker."),
    Key("fetch.max.bytes", INT, 55 * MIB, at_least(KIB),
        doc="The largest answer to a fetch, if the client asks for more; the first batch may exceed it."),
    Key("max.incremental.fetch.session.cache.slots", INT, 1_000, at_least(0),
        doc="Incremental fetch sessions that the broker keeps."),
    Key("max.request.partition.size.limit", INT, 2_000, at_least(1),
        doc="The most partitions that one DescribeTopicPartitions answer lists."),
)  # fmt: skip

TOPICS: tuple[Key, ...] = (
    Key("num.partitions", INT, 1, at_least(1),
        doc="Partitions of a topic that is created without a number of partitions."),
    Key("default.replication.factor", INT, 1, at_least(1),
        doc="Replicas of a topic that is created without a replication factor."),
    Key("auto.create.topics.enable", BOOLEAN, True,
        doc="Whether a topic is created when a client asks for its metadata."),
    Key("delete.topic.enable", BOOLEAN, True,
        doc="Whether topics may be deleted."),
    Key("create.topic.policy.class.name", CLASS, None,
        doc=NO_EFFECT + "It names a Java class that judges new topics."),
    Key("alter.config.policy.class.name", CLASS, None,
        doc=NO_EFFECT + "It names a Java class that judges changes of settings."),
)  # fmt: skip

SHUTDOWN: tuple[Key, ...] = (
    Key("controlled.shutdown.enable", BOOLEAN, True,
        doc="Whether leadership is handed over to other brokers before this one stops."),
    Key("controlled.shutdown.max.retries", INT, 3, at_least(0),
        doc="Retries of a failed hand-over before the broker stops anyway."),
    Key("controlled.shutdown.retry.backoff.ms", LONG, 5 * SECOND_MS, at_least(0),
        doc="The pause between two attempts to hand over."),
)  # fmt: skip

METRICS: tuple[Key, ...] = (
    Key("metrics.num.samples", INT, 2, at_least(1),
        doc=NO_EFFECT + "Metrics are counters; the reader computes rates."),
    Key("metrics.sample.window.ms", LONG, 30 * SECOND_MS, at_least(1),
        doc=NO_EFFECT + "Metrics are counters; the reader computes rates."),
    Key("metrics.recording.level", STRING, "INFO", one_of("INFO", "DEBUG", "TRACE"),
        doc=NO_EFFECT + "All metrics are kept."),
    Key("metrics.series.max", INT, SERIES_MAX, at_least(1),
        doc="Most labelled series of one metric on the metrics page, such as partitions or topics;"
        " `barnabas_metrics_dropped_series` counts those that are left out."),
    Key("metrics.group.lag.interval.ms", INT, 10 * SECOND_MS, at_least(100),
        doc="How often the broker asks other brokers for end offsets of partitions that it has no replica of,"
        " for the lag of the groups that it coordinates. Only with a metrics page."),
    Key("state.change.log.file", STRING, None,
        doc="File of the state-change log: every change of a partition or replica, on Apache Kafka's"
        " `state.change.logger`. The file may be renamed or removed at any time."),
    Key("metric.reporters", LIST, (), None, CLUSTER_WIDE,
        NO_EFFECT + "It names Java classes; metrics are served in the Prometheus format (`--metrics`)."),
    Key("auto.include.jmx.reporter", BOOLEAN, True,
        doc=NO_EFFECT + "There is no JMX outside a Java process."),
    Key("kafka.metrics.reporters", LIST, (),
        doc=NO_EFFECT + "It names Java classes."),
    Key("kafka.metrics.polling.interval.secs", INT, 10, at_least(1),
        doc=NO_EFFECT + "It belongs to `kafka.metrics.reporters`."),
    Key("telemetry.max.bytes", INT, MIB, between(1, INT_MAX),
        doc="Largest push of metrics by a client (KIP-714), compressed and inflated."),
)  # fmt: skip
