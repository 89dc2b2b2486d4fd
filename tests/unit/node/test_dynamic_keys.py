"""Every key that may be changed on a running broker changes what is read there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.support import BROKER_ID, Admin

from barnabas.cluster.config_store import ZnodeConfigStore
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.changes import Change
from barnabas.config.keys import ConfigType, Key, OneOf, Update
from barnabas.config.repository import ConfigRepository, ConfigResource
from barnabas.config.rows import BROKER_KEYS
from barnabas.config.rows.words import NO_EFFECT
from barnabas.core.errors import InvalidRequest
from barnabas.core.ids import BrokerId
from barnabas.network.settings import NetworkSettings
from barnabas.node.live_settings import LiveSettings, follow_settings
from barnabas.node.runtime import ThreadBackground
from barnabas.protocol.config_numbers import ConfigOperation, ResourceType
from barnabas.replication.settings import ReplicationSettings
from barnabas.storage.cleaner.log_cleaner import CleanerSettings

DYNAMIC = [
    row
    for row in BROKER_KEYS.values()
    if row.update is not Update.READ_ONLY and not row.doc.startswith(NO_EFFECT)
]


class Running:
    """What of a running broker reads settings, with nothing behind it."""

    def __init__(self, configs: ConfigRepository) -> None:
        self.configs = configs
        self.network = NetworkSettings()
        self.cleaner: CleanerSettings | None = None
        self.producer_expiration_ms = 0
        self.logs = SimpleNamespace(
            cleaner=SimpleNamespace(reconfigure=self._reconfigure),
            expire_producers_after=self._expire_after,
            recovery_threads_per_directory=0,
        )
        self.replicas: Any = SimpleNamespace(settings=ReplicationSettings(), log_manager=self.logs)
        self.background = ThreadBackground(asyncio.get_running_loop(), 1)
        self.handlers = LiveSettings(BrokerConfig.load({}), configs)
        configs.on_broker_change(lambda _: self.follow())
        self.follow()

    def _reconfigure(self, settings: CleanerSettings) -> None:
        self.cleaner = settings

    def _expire_after(self, idle_ms: int) -> None:
        self.producer_expiration_ms = idle_ms

    def follow(self) -> None:
        follow_settings(self.configs, self.network, self.replicas, self.background)

    def everything_read(self) -> dict[str, object]:
        """Each place that a change may arrive at."""
        return {
            "network": repr(self.network),
            "cleaner": repr(self.cleaner),
            "replication": repr(self.replicas.settings),
            "producers": self.producer_expiration_ms,
            "recovery": self.logs.recovery_threads_per_directory,
            "background": self.background.threads,
            "verification": self.handlers.transaction_partition_verification_enable,
            "topic": self.configs.topic_config("any"),
        }


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with AsyncExitStack() as stack:
        admin = Admin(tmp_path, stack)
        await admin.start()
        configs = ConfigRepository(ZnodeConfigStore(admin.znodes), BrokerId(BROKER_ID), BROKER_KEYS, {})
        await configs.load()
        running = Running(configs)
        stack.push_async_callback(running.background.close)
        yield running


VALUES = {
    "max.connections.per.ip.overrides": "10.0.0.1:7",
    "max.connections": "77",
    "max.connections.per.ip": "77",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleanup.policy": "compact",
    "log.cleaner.io.max.bytes.per.second": "1000000",
    "compression.gzip.level": "5",
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


@pytest.mark.parametrize("row", DYNAMIC, ids=lambda row: row.name)
async def test_a_change_is_read_where_it_matters(row: Key, running: Running) -> None:
    before = running.everything_read()
    broker = ConfigResource(ResourceType.BROKER, str(BROKER_ID))
    change = Change(row.name, ConfigOperation.SET, another_value(row))
    await running.configs.change(broker, [change], validate_only=False)
    assert running.everything_read() != before
    undo = Change(row.name, ConfigOperation.DELETE, None)
    await running.configs.change(broker, [undo], validate_only=False)
    assert running.everything_read() == before


@pytest.mark.parametrize("name", ["listeners", "advertised.listeners", "listener.security.protocol.map"])
async def test_what_holds_from_the_next_start_is_refused_in_words(name: str, running: Running) -> None:
    broker = ConfigResource(ResourceType.BROKER, str(BROKER_ID))
    change = Change(name, ConfigOperation.SET, "PLAINTEXT://127.0.0.1:9")
    with pytest.raises(InvalidRequest, match="cannot update these configs dynamically"):
        await running.configs.change(broker, [change], validate_only=False)


async def test_background_work_goes_on_while_threads_are_exchanged() -> None:
    background = ThreadBackground(asyncio.get_running_loop(), 1)
    done: list[str] = []
    for each in range(20):
        background.submit(str(each).strip, done.append, lambda error: done.append(repr(error)))
        background.resize(1 + each % 3)
    await background.close()
    assert sorted(done, key=int) == [str(each) for each in range(20)]
