"""Which coordination store a broker opens: ZooKeeper if `zookeeper.connect` names one, else its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from barnabas.cluster.coordination import Coordination
from barnabas.cluster.embedded import open_embedded
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.extras import install_command
from barnabas.core.scheduler import Background

COORDINATION_DIRECTORY = "coordination"


@asynccontextmanager
async def open_coordination(
    config: BrokerConfig, clock: Clock, background: Background
) -> AsyncIterator[Coordination]:
    """The embedded store lives in the first log directory, beside the logs."""
    if not config.zookeeper_connect:
        path = Path(config.log_dirs[0]) / COORDINATION_DIRECTORY
        async with open_embedded(path, clock, background) as embedded:
            yield embedded
        return
    try:
        from barnabas.cluster.zookeeper import open_zookeeper  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise InvalidConfig(
            f"zookeeper.connect is set, and the package {error.name} is missing; run"
            f" `{install_command('zookeeper')}`"
        ) from error
    async with open_zookeeper(
        config.zookeeper_connect,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        clock=clock,
        credentials=config.zookeeper_auth,
        set_acl=config.zookeeper_set_acl,
    ) as znodes:
        yield znodes
