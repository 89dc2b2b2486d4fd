"""Every key that may be changed on a running broker changes what its component reads.

Each key is changed by IncrementalAlterConfigs over a socket, looked at where the component of the broker
reads it, and deleted again. DescribeConfigs is not asked: it shows what was written, which is no proof.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.keys import ConfigType, Key, OneOf, Update
from barnabas.config.definitions.shorthand import NO_EFFECT
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.dynamic.group_config import GROUP_KEYS
from barnabas.config.dynamic.repository import ConfigResource
from barnabas.core.errors import MessageTooLarge
from barnabas.core.ids import TopicPartition
from barnabas.network.server import Server
from barnabas.node.background_threads import ThreadBackground
from barnabas.protocol.config_numbers import ConfigOperation, ConfigSource, ResourceType
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.requests.services import Services
from tests.scenario.security.test_tls_renewal import READ_BY_TLS_LISTENERS
from tests.support.in_process import InProcessBroker

TOPIC, GROUP = "topic", "group"


class Running:
    """A broker, and those of its components that read settings."""

    def __init__(self, client: InProcessBroker, made: Mapping[type, list[Any]]) -> None:
        self.client = client
        (self.server,) = made[Server]
        (self.background,) = made[ThreadBackground]
        (self.services,) = made[Services]
        self.replicas = self.services.replicas
        self.logs = self.replicas.log_manager

    @property
    def log(self) -> Any:
        return self.logs.get(TopicPartition(TOPIC, 0))

    async def alter(self, resource: tuple[int, str], name: str, value: str | None) -> None:
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = AlterableConfig(name=name, config_operation=operation, value=value)
        kind, entity = resource
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=kind, resource_name=entity, configs=[change])]
        )
        answer = await self.client.ask(request, IncrementalAlterConfigsResponse)
        (result,) = answer.responses
        assert result.error_code == 0, f"{name}={value}: {result.error_message}"


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    made: dict[type, list[Any]] = {Server: [], ThreadBackground: [], Services: []}

    def record(component: type) -> None:
        initialize: Callable[..., None] = component.__init__  # type: ignore[misc]

        def recording(self: Any, *arguments: Any, **named: Any) -> None:
            made[component].append(self)
            initialize(self, *arguments, **named)

        monkeypatch.setattr(component, "__init__", recording)

    for component in made:
        record(component)
    client = InProcessBroker([tmp_path], broker_id=1)
    await client.start()
    try:
        assert await client.create_topic(TOPIC) == 0
        yield Running(client, made)
    finally:
        await client.stop()


Read = Callable[[Running], object]

READ_BY_COMPONENTS: Mapping[str, Read] = {
    "num.recovery.threads.per.data.dir": lambda at: at.logs._config.num_recovery_threads_per_data_dir,
    "max.connections": lambda at: at.server.config.max_connections,
    "max.connections.per.ip": lambda at: at.server.config.max_connections_per_ip,
    "max.connections.per.ip.overrides": lambda at: at.server.config.max_connections_per_ip_overrides,
    "max.connection.creation.rate": lambda at: at.server._rates._config.max_connection_creation_rate,
    "background.threads": lambda at: at.background.threads,
    "log.cleaner.threads": lambda at: at.logs.cleaner._config.log_cleaner_threads,
    "log.cleaner.io.max.bytes.per.second": lambda at: at.logs.cleaner._throttle.delay_ms_for(1 << 20),
    "log.cleaner.dedupe.buffer.size": lambda at: at.logs.cleaner._config.log_cleaner_dedupe_buffer_size,
    "log.cleaner.io.buffer.size": lambda at: at.logs.cleaner._config.log_cleaner_io_buffer_size,
    "log.cleaner.io.buffer.load.factor": (
        lambda at: at.logs.cleaner._config.log_cleaner_io_buffer_load_factor
    ),
    "log.cleaner.backoff.ms": lambda at: at.logs.cleaner._period_ms,
    "num.replica.fetchers": lambda at: at.replicas.config.num_replica_fetchers,
    "leader.replication.throttled.rate": lambda at: at.replicas.config.leader_replication_throttled_rate,
    "follower.replication.throttled.rate": (
        lambda at: at.replicas.config.follower_replication_throttled_rate
    ),
    "transaction.partition.verification.enable": (
        lambda at: at.services.config.transaction_partition_verification_enable
    ),
    "producer.id.expiration.ms": lambda at: at.logs._environment.config.producer_id_expiration_ms,
}


def read_of_topic(name: str) -> Read:
    return lambda at: getattr(at.log.config, name.replace(".", "_"))


READ_BY_LOGS: Mapping[str, Read] = {
    row.synonym: read_of_topic(row.name) for row in TOPIC_KEYS.values() if row.synonym is not None
}
"""A broker's key that supplies the value of topics is read by the logs of a topic that sets nothing."""

READ_BY_GROUPS: Mapping[str, Read] = {
    "consumer.session.timeout.ms": lambda at: (
        at.services.groups.settings.consumer_times(GROUP).session_timeout_ms
    ),
    "consumer.heartbeat.interval.ms": lambda at: (
        at.services.groups.settings.consumer_times(GROUP).heartbeat_interval_ms
    ),
}

OF_LISTENERS = {name for name, row in BROKER_KEYS.items() if row.update is Update.PER_LISTENER}
"""They change under the name of a listener; `test_tls_renewal` changes each of them."""

DYNAMIC = {
    name: row
    for name, row in BROKER_KEYS.items()
    if row.update is not Update.READ_ONLY and name not in OF_LISTENERS
}
WITHOUT_EFFECT = {name for name, row in DYNAMIC.items() if row.doc.startswith(NO_EFFECT)}

VALUES = {
    "max.connections.per.ip.overrides": "10.0.0.1:7",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "min.cleanable.dirty.ratio": "0.25",
    "log.cleaner.io.max.bytes.per.second": "1000000",
    "compression.gzip.level": "5",
    "log.cleanup.policy": "compact",
    "cleanup.policy": "compact",
    "leader.replication.throttled.replicas": "0:1",
    "follower.replication.throttled.replicas": "0:1",
    "message.format.version": "2.8-IV0",
    "barnabas.table": "delta:/lake/orders",
}


def another_value(row: Key) -> str:
    """A valid text that is not the default."""
    if row.name in VALUES:
        return VALUES[row.name]
    if row.type is ConfigType.BOOLEAN:
        return str(not row.default).lower()
    if isinstance(row.check, OneOf):
        return next(word for word in row.check.allowed if word != row.default)
    default = row.default or 0
    return str(default + 1 if default < 2**31 - 1 else default - 1)


async def keys_that_change_nothing(
    running: Running,
    resource: tuple[int, str],
    rows: Mapping[str, Key],
    reads: Mapping[str, Read],
) -> list[str]:
    dead = []
    for name, row in rows.items():
        read = reads[name]
        before = read(running)
        await running.alter(resource, name, another_value(row))
        if read(running) == before:
            dead.append(name)
        await running.alter(resource, name, None)
        if name != "log.cleaner.io.max.bytes.per.second" and read(running) != before:
            dead.append(f"{name}, when it is deleted")
    return dead


def test_every_dynamic_key_of_a_broker_has_a_reader() -> None:
    """A key that Kafka lets change and that has no meaning here says so in its row, and is not changed
    below."""
    read = READ_BY_COMPONENTS.keys() | READ_BY_LOGS.keys()
    assert DYNAMIC.keys() - WITHOUT_EFFECT <= read
    assert READ_BY_COMPONENTS.keys() <= DYNAMIC.keys()
    assert READ_BY_TLS_LISTENERS.keys() == OF_LISTENERS
    assert READ_BY_GROUPS.keys() == GROUP_KEYS.keys()


@pytest.mark.parametrize("entity", ["", "1"], ids=["all brokers", "one broker"])
async def test_a_change_of_a_broker_is_read(running: Running, entity: str) -> None:
    level = {Update.CLUSTER_WIDE} if not entity else {Update.CLUSTER_WIDE, Update.PER_BROKER}
    rows = {n: row for n, row in DYNAMIC.items() if row.update in level and n not in WITHOUT_EFFECT}
    reads = {**READ_BY_LOGS, **READ_BY_COMPONENTS}
    assert await keys_that_change_nothing(running, (ResourceType.BROKER, entity), rows, reads) == []


async def test_keys_that_only_kafka_reads_can_be_changed_as_there(running: Running) -> None:
    """Clients set them (librdkafka's tests do), and find what they set."""
    name = "sasl.kerberos.min.time.before.relogin"
    assert name in WITHOUT_EFFECT
    await running.alter((ResourceType.BROKER, "1"), name, "58000")
    described = running.services.configs.describe(ConfigResource(ResourceType.BROKER, "1"))
    (entry,) = [each for each in described if each.name == name]
    assert (entry.value, entry.source, entry.read_only) == ("58000", ConfigSource.DYNAMIC_BROKER, False)


async def test_a_change_of_a_topic_is_read(running: Running) -> None:
    reads = {name: read_of_topic(name) for name in TOPIC_KEYS}
    resource = (ResourceType.TOPIC, TOPIC)
    assert await keys_that_change_nothing(running, resource, TOPIC_KEYS, reads) == []


async def test_a_change_of_a_group_is_read(running: Running) -> None:
    resource = (ResourceType.GROUP, GROUP)
    assert await keys_that_change_nothing(running, resource, GROUP_KEYS, READ_BY_GROUPS) == []


async def test_a_log_works_by_what_was_changed(running: Running) -> None:
    """Beyond reading: a log keeps some settings at hand, and they are the new ones."""
    client = running.client
    await client.produce(TOPIC, b"x" * 100)
    await running.alter((ResourceType.TOPIC, TOPIC), "segment.bytes", "200")
    for _ in range(2):
        assert (await client.produce(TOPIC, b"x" * 100)).error_code == 0
    assert len(running.log.segments) == 3
    await running.alter((ResourceType.BROKER, ""), "message.max.bytes", "100")
    assert (await client.produce(TOPIC, b"x" * 100)).error_code == MessageTooLarge.code
    await running.alter((ResourceType.BROKER, ""), "log.flush.interval.messages", "1")
    await client.produce(TOPIC, b"f")
    assert running.log.unflushed_messages == 0
