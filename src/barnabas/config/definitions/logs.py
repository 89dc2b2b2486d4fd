"""Log directories, segments, retention, flushing and compaction.

Most of these are the defaults of topic settings: a topic without `segment.bytes` uses `log.segment.bytes`.
Where Kafka has one setting in several units, the finest unit that is set wins (`log.retention.ms` before
`.minutes` before `.hours`).
"""

from __future__ import annotations

from barnabas.config.definitions.keys import Key, at_least, between, one_of
from barnabas.config.definitions.shorthand import (
    BOOLEAN,
    CLUSTER_WIDE,
    DAY_MS,
    DOUBLE,
    INT,
    KIB,
    LIST,
    LONG,
    MIB,
    MINUTE_MS,
    NO_EFFECT,
    SECOND_MS,
    STRING,
)
from barnabas.core.integers import LONG_MAX


class GzipLevel:
    """1 to 9, or -1 for the library's own choice."""

    def __call__(self, value: int) -> None:
        if value != -1 and not 1 <= value <= 9:
            raise ValueError(f"must be within {self.describe()}")

    def describe(self) -> str:
        return "[1, 9] or -1"


DIRECTORIES: tuple[Key, ...] = (
    Key("log.dirs", STRING, None,
        doc="The directories that hold the logs, separated by commas. Unset means `log.dir`."),
    Key("log.dir", STRING, None,
        doc="The directory that holds the logs, if `log.dirs` is unset. Apache Kafka uses a directory"
        " under /tmp; here it is $XDG_DATA_HOME/barnabas, or ~/.local/share/barnabas."),
    Key("num.recovery.threads.per.data.dir", INT, 1, at_least(1), CLUSTER_WIDE,
        "Threads per directory that check logs after an unclean stop and flush them at a clean one."),
    Key("log.dir.failure.timeout.ms", LONG, 30 * SECOND_MS, at_least(1),
        doc=NO_EFFECT + "The report of a failed directory through ZooKeeper is retried without a limit."),
)  # fmt: skip

SEGMENTS: tuple[Key, ...] = (
    Key("log.segment.bytes", INT, 1 << 30, at_least(14), CLUSTER_WIDE,
        "A segment is rolled before it would grow past this size."),
    Key("log.roll.ms", LONG, None, at_least(1), CLUSTER_WIDE,
        "A segment is rolled when its first record is this old. Wins over `log.roll.hours`."),
    Key("log.roll.hours", INT, 168, at_least(1),
        doc="The same in hours."),
    Key("log.roll.jitter.ms", LONG, None, at_least(0), CLUSTER_WIDE,
        "The largest random shift of a roll, so that segments do not all roll together."),
    Key("log.roll.jitter.hours", INT, 0, at_least(0),
        doc="The same in hours."),
    Key("log.index.size.max.bytes", INT, 10 * MIB, at_least(4), CLUSTER_WIDE,
        "The largest offset index; a segment whose index is full is rolled."),
    Key("log.index.interval.bytes", INT, 4 * KIB, at_least(0), CLUSTER_WIDE,
        "Bytes of log between two index entries."),
    Key("log.preallocate", BOOLEAN, False, None, CLUSTER_WIDE,
        NO_EFFECT + "Files grow as they are written."),
    Key("log.segment.delete.delay.ms", LONG, MINUTE_MS, at_least(0), CLUSTER_WIDE,
        "The pause between taking a segment out of service and removing its file."),
    Key("log.initial.task.delay.ms", LONG, 30 * SECOND_MS, at_least(0),
        doc="Delay after the start of the first round of retention, flushing and checkpoints."),
)  # fmt: skip

RETENTION: tuple[Key, ...] = (
    Key("log.retention.ms", LONG, None, at_least(-1), CLUSTER_WIDE,
        "Segments whose records are all older are deleted; -1 keeps them. Wins over minutes and hours."),
    Key("log.retention.minutes", INT, None,
        doc="The same in minutes. Wins over hours."),
    Key("log.retention.hours", INT, 168,
        doc="The same in hours."),
    Key("log.retention.bytes", LONG, -1, None, CLUSTER_WIDE,
        "The oldest segments of a larger partition are deleted; -1 sets no bound."),
    Key("log.retention.check.interval.ms", LONG, 5 * MINUTE_MS, at_least(1),
        doc="Interval of the search for segments to delete."),
    Key("log.cleanup.policy", LIST, ("delete",), one_of("compact", "delete"), CLUSTER_WIDE,
        "Treatment of old records: delete by time and size, compact to the last value of each key, or both."),
)  # fmt: skip

FLUSHING: tuple[Key, ...] = (
    Key("log.flush.interval.messages", LONG, LONG_MAX, at_least(1), CLUSTER_WIDE,
        "Records after which a partition is flushed to disk before it acknowledges more."),
    Key("log.flush.interval.ms", LONG, None, at_least(0), CLUSTER_WIDE,
        "The longest that a record stays unflushed; unset means `log.flush.scheduler.interval.ms`."),
    Key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, at_least(1),
        doc="Interval of the search for partitions whose flush is due."),
    Key("log.flush.offset.checkpoint.interval.ms", INT, MINUTE_MS, at_least(0),
        doc="Interval of the checkpoints of recovery points."),
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, MINUTE_MS, at_least(0),
        doc="Interval of the checkpoints of log start offsets."),
)  # fmt: skip

MESSAGES: tuple[Key, ...] = (
    Key("message.max.bytes", INT, MIB + 12, at_least(0), CLUSTER_WIDE,
        "The largest batch that a producer may send, after compression."),
    Key("compression.type", STRING, "producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), CLUSTER_WIDE,
        "Compression of batches in the log; `producer` keeps the producer's."),
    Key("compression.gzip.level", INT, -1, GzipLevel(), CLUSTER_WIDE,
        "The level when `compression.type` is gzip."),
    Key("compression.lz4.level", INT, 9, between(1, 17), CLUSTER_WIDE,
        "The level when `compression.type` is lz4."),
    Key("compression.zstd.level", INT, 3, between(-131_072, 22), CLUSTER_WIDE,
        "The level when `compression.type` is zstd."),
    Key("log.message.timestamp.type", STRING, "CreateTime",
        one_of("CreateTime", "LogAppendTime"), CLUSTER_WIDE,
        "The clock that stamps a record: the producer's or the broker's."),
    Key("log.message.timestamp.before.max.ms", LONG, LONG_MAX, at_least(0), CLUSTER_WIDE,
        "The largest age of a producer's timestamp."),
    Key("log.message.timestamp.after.max.ms", LONG, LONG_MAX, at_least(0), CLUSTER_WIDE,
        "The largest distance of a producer's timestamp into the future."),
    Key("log.message.timestamp.difference.max.ms", LONG, LONG_MAX, at_least(0), CLUSTER_WIDE,
        "Kafka's older name for both bounds at once; used where neither of them is set."),
    Key("log.message.downconversion.enable", BOOLEAN, True, None, CLUSTER_WIDE,
        "Whether records are converted for clients that know only older formats."),
    Key("log.message.format.version", STRING, "3.0-IV1",
        doc=NO_EFFECT + "Records are stored in the format of Kafka 0.11 and later."),
)  # fmt: skip

CLEANER: tuple[Key, ...] = (
    Key("log.cleaner.enable", BOOLEAN, True,
        doc="Whether compacted topics are compacted."),
    Key("log.cleaner.threads", INT, 1, at_least(0), CLUSTER_WIDE,
        "Logs that are compacted at once."),
    Key("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, None, CLUSTER_WIDE,
        "Bytes per second that compaction may read and write."),
    Key("log.cleaner.dedupe.buffer.size", LONG, 128 * MIB, None, CLUSTER_WIDE,
        "Memory for the keys seen by one round of compaction, over all its threads."),
    Key("log.cleaner.io.buffer.size", INT, 512 * KIB, at_least(0), CLUSTER_WIDE,
        "Memory for reading and writing, over all threads."),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, None, CLUSTER_WIDE,
        "The largest load factor of the table of keys."),
    Key("log.cleaner.backoff.ms", LONG, 15 * SECOND_MS, at_least(0), CLUSTER_WIDE,
        "The pause when there is nothing to compact."),
    Key("log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, between(0, 1), CLUSTER_WIDE,
        "The share of a log that must be uncompacted before compaction starts."),
    Key("log.cleaner.delete.retention.ms", LONG, DAY_MS, at_least(0), CLUSTER_WIDE,
        "Time for which tombstones and transaction markers outlive the records that they delete."),
    Key("log.cleaner.min.compaction.lag.ms", LONG, 0, at_least(0), CLUSTER_WIDE,
        "The smallest age of a record that is compacted."),
    Key("log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, at_least(1), CLUSTER_WIDE,
        "The largest age of an uncompacted record."),
)  # fmt: skip
