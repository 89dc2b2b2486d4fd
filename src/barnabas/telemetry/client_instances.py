"""Client instances that push their metrics, with the last value of each series.

A client gets an instance id, and pushes under it to one broker at a time. The broker knows an instance while
the connection lives, and for three intervals. Instances belong to their principal: another principal that
names the same id gets an instance of its own.

A push before its time is refused (THROTTLING_QUOTA_EXCEEDED), and so is a push for an old subscription
(UNKNOWN_SUBSCRIPTION_ID). The client then asks again, which it may do at once. A terminating client's last
push may come early, and is its last.

Sums come as increases, which the broker adds up, so each value is that of the client's whole life.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from barnabas.core.bounds.kept_memory import MemoryAccount, MemoryLimits, MemoryOwner, Reservation
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidRequest,
    KafkaError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from barnabas.core.ids import ZERO_UUID, Randomness, Uuid
from barnabas.core.limits import (
    TELEMETRY_BYTES_MAX,
    TELEMETRY_CLIENTS_PER_CONNECTION_MAX,
    TELEMETRY_FIELDS_PER_PUSH_MAX,
    TELEMETRY_PER_CONNECTION_BYTES_MAX,
    TELEMETRY_PER_PRINCIPAL_BYTES_MAX,
    TELEMETRY_SERIES_PER_CLIENT_MAX,
)
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.metrics import Labels as PageLabels
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.steps import Sliced
from barnabas.records.compression import CODECS, decompress
from barnabas.telemetry.subscriptions import Demand, Subscriptions

if TYPE_CHECKING:  # the first push needs the format
    from barnabas.telemetry.otlp import Labels, Point

IDLE_MS_MIN: Final = 60_000
INTERVALS_KEPT: Final = 3
SWEEP_INTERVAL_MS: Final = 10_000
RESERVED_IDS: Final = (ZERO_UUID, Uuid(bytes(15) + b"\x01"))
INSTANCE_BYTES: Final = 1_024
SERIES_BYTES: Final = 256
ASKS_AT_ONCE_AFTER: Final = (UnknownSubscriptionId, UnsupportedCompressionType)

Series: TypeAlias = "tuple[str, Labels]"
Key = tuple[str, Uuid]
"""Principal and instance id."""


class Reporter(NamedTuple):
    """The client of a request, as far as telemetry is concerned."""

    owner: MemoryOwner
    client_id: str
    host: str
    port: str
    software: tuple[str, str]
    when_closed: Callable[[Callable[[], None]], None]
    """Calls its argument when the connection ends."""

    def attributes(self, instance_id: Uuid) -> Mapping[str, str]:
        """Attributes that subscriptions match."""
        return {
            "client_instance_id": str(instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software[0],
            "client_software_version": self.software[1],
            "client_source_address": self.host,
            "client_source_port": self.port,
        }


class Push(NamedTuple):
    instance_id: Uuid
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes | memoryview


@dataclass(slots=True)
class ClientInstance:
    """A client that knows its subscription."""

    instance_id: Uuid
    reporter: Reporter
    demand: Demand
    version: int
    """Of the subscriptions that the demand was made of."""
    memory: Reservation
    expires_ms: float
    asked_ms: float = -math.inf
    pushed_ms: float = -math.inf
    last_push_ms: int = 0
    """Wall-clock time of the last push."""
    terminating: bool = False
    last_error: type[KafkaError] | None = None
    series: dict[Series, float] = field(default_factory=dict)

    def may_ask(self, now_ms: float) -> bool:
        due = now_ms - max(self.asked_ms, self.pushed_ms) >= self.demand.interval_ms
        if due:
            self.asked_ms = now_ms
        return due or self.last_error in ASKS_AT_ONCE_AFTER

    def may_push(self, now_ms: float) -> bool:
        """The first push after a question may come at any time, because clients vary their first interval."""
        due = self.asked_ms > self.pushed_ms or now_ms - self.pushed_ms >= self.demand.interval_ms
        if due:
            self.pushed_ms = now_ms
        return due


class ClientInstances:
    """Answers the two requests of KIP-714, and holds what clients report."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._randomness = randomness
        self._instances: dict[Key, ClientInstance] = {}
        self._by_connection: dict[str, set[Key]] = {}
        limits = MemoryLimits(
            TELEMETRY_PER_CONNECTION_BYTES_MAX, TELEMETRY_PER_PRINCIPAL_BYTES_MAX, TELEMETRY_BYTES_MAX
        )
        self.memory = MemoryAccount("client telemetry", limits, metrics)
        self._register(metrics)

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(tuple(self._instances.values()))

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, instance_id: Uuid, reporter: Reporter) -> Sliced[ClientInstance]:
        """The client's instance with its demand; a client without an id gets one."""
        if instance_id == ZERO_UUID:
            instance_id = Uuid.generate(self._randomness)
        instance = yield from self._instance(instance_id, reporter)
        if not instance.may_ask(self._clock.monotonic_ms()):
            self._throttled.value += 1
            raise ThrottlingQuotaExceeded(f"client {instance_id} asks before its interval is over")
        instance.last_error = None
        return instance

    def push(self, push: Push, reporter: Reporter, bytes_max: int) -> Sliced[None]:
        """Take over the values of a push."""
        if push.instance_id in RESERVED_IDS:
            raise InvalidRequest(f"{push.instance_id} is not the id of a client instance")
        instance = yield from self._instance(push.instance_id, reporter)
        try:
            self._check(instance, push, bytes_max)
        except KafkaError as error:
            instance.last_error = type(error)
            raise
        finally:
            instance.terminating = push.terminating
        try:
            yield from self._take_over(instance, push, bytes_max)
        except KafkaError as error:
            self._malformed.value += 1
            instance.last_error = type(error)
            raise
        self._pushes.value += 1
        instance.last_error = None
        instance.last_push_ms = self._clock.now_ms()

    def disconnected(self, connection: str) -> None:
        """Forget the instances of a connection that has ended."""
        for key in self._by_connection.pop(connection, ()):
            self._instances.pop(key).memory.release()

    def sweep(self) -> None:
        """Forget instances that have been silent for three intervals."""
        now_ms = self._clock.monotonic_ms()
        for key, instance in list(self._instances.items()):
            with sweeping("forgetting silent clients", key):
                if now_ms > instance.expires_ms:
                    self._forget(key, instance)

    # --- instances ---

    def _instance(self, instance_id: Uuid, reporter: Reporter) -> Sliced[ClientInstance]:
        """The instance, with a demand that follows from the present subscriptions."""
        key = reporter.owner.principal, instance_id
        instance = self._instances.get(key)
        if instance is None or instance.version != self._subscriptions.version:
            version = self._subscriptions.version
            demand = yield from self._subscriptions.demand_of(instance_id, reporter.attributes(instance_id))
            instance = self._instances.get(key)  # another request may have been faster
            if instance is None:
                instance = self._create(key, reporter, demand, version)
            elif instance.version != version:
                instance.demand, instance.version = demand, version
                instance.asked_ms = instance.pushed_ms = -math.inf
                instance.terminating, instance.last_error = False, None
                instance.series.clear()
                self.memory.shrink(instance.memory, INSTANCE_BYTES)
        if instance.reporter.owner.connection != reporter.owner.connection:
            self._move(key, instance, reporter)
        kept_ms = max(IDLE_MS_MIN, INTERVALS_KEPT * instance.demand.interval_ms)
        instance.expires_ms = self._clock.monotonic_ms() + kept_ms
        return instance

    def _create(self, key: Key, reporter: Reporter, demand: Demand, version: int) -> ClientInstance:
        memory = self._reserve(reporter, INSTANCE_BYTES)
        instance = ClientInstance(key[1], reporter, demand, version, memory, expires_ms=0.0)
        self._instances[key] = instance
        self._hold(key, reporter)
        return instance

    def _move(self, key: Key, instance: ClientInstance, reporter: Reporter) -> None:
        """A client has connected again, maybe before its old connection was closed."""
        memory = self._reserve(reporter, instance.memory.size_bytes)
        instance.memory.release()
        self._by_connection[instance.reporter.owner.connection].discard(key)
        instance.memory, instance.reporter = memory, reporter
        self._hold(key, reporter)

    def _reserve(self, reporter: Reporter, size_bytes: int) -> Reservation:
        known = self._by_connection.get(reporter.owner.connection, ())
        full = len(known) >= TELEMETRY_CLIENTS_PER_CONNECTION_MAX
        memory = None if full else self.memory.reserve(reporter.owner, size_bytes)
        if memory is None:
            self._throttled.value += 1
            raise ThrottlingQuotaExceeded("too many client instances report their metrics")
        return memory

    def _hold(self, key: Key, reporter: Reporter) -> None:
        """Keep the instance until its connection ends."""
        connection = reporter.owner.connection
        keys = self._by_connection.get(connection)
        if keys is not None:
            keys.add(key)
            return
        self._by_connection[connection] = {key}
        reporter.when_closed(lambda: self.disconnected(connection))

    def _forget(self, key: Key, instance: ClientInstance) -> None:
        del self._instances[key]
        instance.memory.release()
        self._by_connection[instance.reporter.owner.connection].discard(key)

    # --- pushes ---

    def _check(self, instance: ClientInstance, push: Push, bytes_max: int) -> None:
        """Kafka's checks, in Kafka's order."""
        name = push.instance_id
        if instance.terminating:
            raise InvalidRequest(f"client {name} has said that its last push was its last")
        if not instance.may_push(self._clock.monotonic_ms()) and not push.terminating:
            self._throttled.value += 1
            raise ThrottlingQuotaExceeded(f"client {name} pushes before its interval is over")
        if push.subscription_id != instance.demand.subscription_id:
            self._unknown.value += 1
            raise UnknownSubscriptionId(f"client {name} pushes for an old subscription")
        if not 0 <= push.compression_type < len(CODECS):
            raise UnsupportedCompressionType(f"no compression type {push.compression_type}")
        if len(push.metrics) > bytes_max:
            raise TelemetryTooLarge(f"a push may have {bytes_max} bytes, not {len(push.metrics)}")

    def _take_over(self, instance: ClientInstance, push: Push, bytes_max: int) -> Sliced[None]:
        if not push.metrics:
            return
        from barnabas.telemetry.otlp import data_points  # noqa: PLC0415 - see `node.main.LATER`

        data = _inflated(push, bytes_max)
        yield
        taken: list[Point] = []
        for number, point in enumerate(data_points(memoryview(data))):
            if number == TELEMETRY_FIELDS_PER_PUSH_MAX:
                self._dropped.value += 1
                break
            if point is not None and len(taken) < TELEMETRY_SERIES_PER_CLIENT_MAX:
                taken.append(point)
            elif point is not None:
                self._dropped.value += 1
            yield
        for point in taken:  # after the last fault: a malformed push changes nothing
            self._put(instance, point)
            yield

    def _put(self, instance: ClientInstance, point: Point) -> None:
        series = point.name, point.labels
        known = instance.series.get(series)
        if known is None:
            size_bytes = instance.memory.size_bytes + SERIES_BYTES + _text_bytes(point)
            full = len(instance.series) >= TELEMETRY_SERIES_PER_CLIENT_MAX
            if full or not self.memory.grow(instance.memory, size_bytes):
                self._dropped.value += 1
                return
        value = point.value + (known or 0.0) if point.is_delta else point.value
        if math.isfinite(value):
            instance.series[series] = value

    # --- metrics ---

    def _register(self, metrics: Metrics) -> None:
        metrics.gauge(
            "kafka_client_metrics_instance_count",
            "Client instances that the broker knows (KIP-714).",
            lambda: len(self._instances),
        )
        self._unknown = metrics.counter(
            "kafka_client_metrics_unknown_subscription_request_total",
            "Pushes of clients for another subscription than theirs.",
        )
        self._throttled = metrics.counter(
            "kafka_client_metrics_throttle_total",
            "Questions and pushes of clients that came too early, or were too many.",
        )
        self._pushes = metrics.counter(
            "kafka_client_metrics_plugin_export_total", "Pushes of clients whose metrics were taken over."
        )
        self._malformed = metrics.counter(
            "kafka_client_metrics_plugin_error_total", "Pushes of clients that could not be read."
        )
        self._dropped = metrics.counter(
            "barnabas_client_metrics_dropped_total", "Values in pushes of clients beyond a limit."
        )
        metrics.samples(
            "barnabas_client_reported",
            "Metrics that clients report of themselves (KIP-714): the last value of each.",
            ("attributes", "client_id", "client_instance_id", "client_software", "metric"),
            self._samples,
        )

    def _samples(self) -> Iterator[tuple[PageLabels, float]]:
        for instance in self:
            software = " ".join(instance.reporter.software)
            for (name, labels), value in list(instance.series.items()):
                yield (
                    (
                        ("attributes", ",".join(f"{key}={text}" for key, text in labels)),
                        ("client_id", instance.reporter.client_id),
                        ("client_instance_id", str(instance.instance_id)),
                        ("client_software", software),
                        ("metric", name),
                    ),
                    value,
                )


def _inflated(push: Push, bytes_max: int) -> bytes | bytearray:
    """The inflated metrics, within the limit of a push."""
    try:
        return decompress(CODECS[push.compression_type], push.metrics, bytes_max)
    except CorruptMessage as error:
        raise InvalidRecord(error.message) from None
    except InvalidRecord:
        raise TelemetryTooLarge(f"the metrics inflate to more than {bytes_max} bytes") from None


def _text_bytes(point: Point) -> int:
    """Memory of the texts: Python keeps each character of a text beyond Latin-1 in up to four bytes."""
    texts = (point.name, *(text for label in point.labels for text in label))
    return sum(len(text) if text.isascii() else 4 * len(text) for text in texts)
