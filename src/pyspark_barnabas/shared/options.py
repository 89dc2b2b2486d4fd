"""Options of the data source: parsing, checks and error messages.

Names and meanings are those of Spark's own Kafka connector, so code moves over by changing the name of the
format. Spark passes option names in lower case; messages spell them as the documentation does.

`kafka.*` options are Kafka's client settings. The connector honours those that concern it and accepts those
that are harmless. It refuses any other name: a misspelt setting without effect is worse than an error.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.security import settings as security_settings
from barnabas.client.security.settings import SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.records.compression import CODEC_BY_NAME, Codec
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from pyspark_barnabas.shared.columns import DEFAULT_COLUMNS, SPARK_TYPES

READ_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "keepOrder",
    "failOnDataLoss",
    "offsetsAtRead",
    "groupIdPrefix",
    "includeHeaders",
    "columns",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
WRITE_OPTIONS: Final = (
    "topic",
    "includeHeaders",
    "compression",
    "delivery",
    "transactionalIdPrefix",
    "pipelineId",
    "markerTopic",
    "offsetSyncPrefix",
    "offsetSyncTopic",
    "transactionTimeoutMs",
)
OTHER_OPTIONS: Final = ("engine", "path", "manifest", "checkpointLocation", "queryName", "queryId", "batchId")
KAFKA_OPTIONS: Final = (
    security_settings.OPTIONS
    | security_settings.CODE_OPTIONS
    | {
        "bootstrap.servers",
        "client.id",
        "group.id",
        "isolation.level",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "max.partition.fetch.bytes",
        "fetch.max.bytes",
        "compression.type",
        "batch.size",
        "max.request.size",
        "delivery.timeout.ms",
        "transaction.timeout.ms",
        "acks",
    }
)
KAFKA_IGNORED: Final = security_settings.HARMLESS | frozenset(
    {
        "linger.ms",
        "buffer.memory",
        "retries",
        "enable.idempotence",
        "max.in.flight.requests.per.connection",
        "fetch.min.bytes",
        "fetch.max.wait.ms",
        "max.poll.records",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "retry.backoff.ms",
    }
)
_SPELLING: Final = {name.lower(): name for name in (*READ_OPTIONS, *WRITE_OPTIONS, *OTHER_OPTIONS)}
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|sec|m|min|h|d)?")
_DURATION_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "sec": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
BATCH_BYTES: Final = 1 << 20
FETCH_BYTES: Final = 4 << 20


class OptionError(ValueError):
    """An option is missing, unknown or invalid. The message names it and says what to write instead."""


class Options:
    """Option values by lower-case name."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            self._check_name(name)

    def _check_name(self, name: str) -> None:
        if name.startswith("kafka."):
            known = {f"kafka.{each}" for each in KAFKA_OPTIONS | KAFKA_IGNORED}
        else:
            known = set(_SPELLING)
        if name in known:
            return
        plain = name.removeprefix("kafka.").replace("_", ".")
        if f"kafka.{plain}" != name and plain in KAFKA_OPTIONS | KAFKA_IGNORED:
            raise OptionError(
                f"unknown option {name!r}; Kafka's own settings begin with kafka.: kafka.{plain}"
            )
        if name.startswith("kafka.") and name.removeprefix("kafka.") in _SPELLING:
            spelled = _SPELLING[name.removeprefix("kafka.")]
            raise OptionError(f"unknown option {name!r}; it is {spelled}, without kafka.")
        close = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"; did you mean {_SPELLING.get(close[0], close[0])}?" if close else ""
        raise OptionError(f"unknown option {name!r}{hint}")

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def kafka(self) -> dict[str, str]:
        """`kafka.*` options without their prefix."""
        return {name[6:]: value for name, value in self._given.items() if name.startswith("kafka.")}

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        text = self.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise OptionError(f"{name} must be a whole number, not {text!r}") from None
        if value < least:
            raise OptionError(f"{name} must be at least {least}, not {value}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(f"{name} must be true or false, not {text!r}")
        return text.lower() == "true"

    def duration_ms(self, name: str, default: int) -> int:
        text = self.get(name)
        if text is None:
            return default
        found = _DURATION.fullmatch(text.strip().lower())
        if not found:
            raise OptionError(f"{name} must be a duration such as 500ms, 10s or 15m, not {text!r}")
        return int(found[1]) * _DURATION_MS[found[2] or "ms"]

    def json(self, name: str) -> Any:
        text = self.get(name)
        assert text is not None
        try:
            return json.loads(text)
        except ValueError as error:
            raise OptionError(f"{name} is not valid JSON: {error}") from None

    def by_partition(self, name: str) -> dict[TopicPartition, int]:
        """Numbers by topic-partition, from `{"topic": {"0": number}}`."""
        tree = self.json(name)
        form = f'{name} must look like {{"topic": {{"0": 23, "1": -2}}}}'
        if not isinstance(tree, dict):
            raise OptionError(form)
        found = {}
        for topic, rows in tree.items():
            if not isinstance(rows, dict):
                raise OptionError(form)
            for partition, number in rows.items():
                if not partition.isdecimal() or not isinstance(number, int):
                    raise OptionError(form)
                found[TopicPartition(topic, int(partition))] = number
        return found


@dataclass(frozen=True, slots=True)
class Subscription:
    """Subscribed topics: exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """Start or end of a read: a default, offsets by partition, or timestamps."""

    default: int
    """LATEST or EARLIEST."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    latest_when_no_match: bool = False


def cluster_config(options: Options) -> ClusterConfig:
    kafka = options.kafka()
    servers = kafka.get("bootstrap.servers", "")
    if not servers.strip():
        raise OptionError("kafka.bootstrap.servers is required, for example localhost:9092")
    try:
        protection = SecuritySettings.parse(kafka)
    except InvalidConfig as error:
        raise OptionError(f"kafka.{error.message}") from None
    timeout_ms = options.number("kafka.request.timeout.ms", 30_000)
    patience_ms = options.number("kafka.default.api.timeout.ms", 60_000)
    assert timeout_ms is not None
    assert patience_ms is not None
    return ClusterConfig(
        bootstrap=tuple(_endpoint(text) for text in servers.split(",") if text.strip()),
        client_id=kafka.get("client.id", "pyspark-barnabas"),
        request_timeout_ms=timeout_ms,
        retry_timeout_ms=patience_ms,
        security=protection,
    )


def _endpoint(text: str) -> Endpoint:
    try:
        return Endpoint.parse(text)
    except ValueError:
        raise OptionError(f"kafka.bootstrap.servers: {text.strip()!r} is not of the form HOST:PORT") from None


def subscription(options: Options) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if options.get(name) is not None]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign is needed; {problem}")
    text = options.get(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
        if not topics:
            raise OptionError("subscribe names no topic")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern is not a regular expression: {error}") from None
        return Subscription(pattern=text)
    return Subscription(assigned=_assigned(options.json("assign")))


def _assigned(tree: Any) -> tuple[TopicPartition, ...]:
    form = 'assign must look like {"topic": [0, 1]}'
    if not isinstance(tree, dict) or not tree:
        raise OptionError(form)
    topic_partitions = []
    for topic, partitions in tree.items():
        if not isinstance(partitions, list) or not all(isinstance(each, int) for each in partitions):
            raise OptionError(form)
        topic_partitions += [TopicPartition(topic, each) for each in partitions]
    return tuple(sorted(set(topic_partitions)))


def starting(options: Options, *, is_stream: bool) -> Bound:
    strategy = (options.get("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in {"error", "latest"}:
        raise OptionError(f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}")
    default = LATEST if is_stream else EARLIEST
    bound = _bound(options, "starting", default, latest_when_no_match=strategy == "latest")
    if not is_stream and (bound.default == LATEST or LATEST in bound.offsets.values()):
        raise OptionError("startingOffsets of a batch cannot be latest: there would be nothing to read")
    return bound


def ending(options: Options) -> Bound:
    bound = _bound(options, "ending", LATEST, latest_when_no_match=True)
    if bound.default == EARLIEST or EARLIEST in bound.offsets.values():
        raise OptionError("endingOffsets cannot be earliest: there would be nothing to read")
    return bound


def _bound(options: Options, which: str, default: int, *, latest_when_no_match: bool) -> Bound:
    """Spark's order of precedence: one timestamp, timestamps by partition, offsets."""
    timestamp = options.number(f"{which}Timestamp", least=0)
    if timestamp is not None:
        return Bound(default, timestamp_ms=timestamp, latest_when_no_match=latest_when_no_match)
    if options.get(f"{which}OffsetsByTimestamp") is not None:
        stamps = options.by_partition(f"{which}OffsetsByTimestamp")
        return Bound(default, timestamps_ms=stamps, latest_when_no_match=latest_when_no_match)
    text = (options.get(f"{which}Offsets") or "").strip()
    if not text:
        return Bound(default)
    if text.lower() in {"earliest", "latest"}:
        return Bound(EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise OptionError(f"{which}Offsets is earliest, latest or JSON by partition, not {text!r}")
    return Bound(default, offsets=options.by_partition(f"{which}Offsets"))


def isolation(options: Options) -> int:
    level = options.kafka().get("isolation.level", "read_uncommitted").lower()
    if level not in {"read_committed", "read_uncommitted"}:
        raise OptionError(f"kafka.isolation.level is read_committed or read_uncommitted, not {level!r}")
    return READ_COMMITTED if level == "read_committed" else READ_UNCOMMITTED


def columns(options: Options) -> tuple[str, ...]:
    text = options.get("columns")
    if text is None:
        with_headers = options.flag("includeHeaders", default=False)
        return (*DEFAULT_COLUMNS, "headers") if with_headers else DEFAULT_COLUMNS
    spelled = {name.lower(): name for name in SPARK_TYPES}
    chosen = []
    for name in (part.strip() for part in text.split(",")):
        if name.lower() not in spelled:
            raise OptionError(f"columns names {name!r}; there are {', '.join(SPARK_TYPES)}")
        chosen.append(spelled[name.lower()])
    if len(set(chosen)) != len(chosen):
        raise OptionError("columns names a column twice")
    return tuple(chosen)


def compression(options: Options) -> Codec:
    name = (options.get("compression") or options.kafka().get("compression.type") or "none").lower()
    if name not in CODEC_BY_NAME:
        raise OptionError(f"compression is one of {', '.join(CODEC_BY_NAME)}, not {name!r}")
    return CODEC_BY_NAME[name]


def check_acks(options: Options) -> None:
    """Refuse `kafka.acks` other than all: each task has an idempotent producer, which needs it."""
    acks = options.kafka().get("acks", "all").strip().lower()
    if acks not in {"all", "-1"}:
        raise OptionError(f"kafka.acks is always all, because the producer is idempotent; not {acks!r}")
