"""Choice of the coordination store: ZooKeeper, the shared store of this machine, or the embedded store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.embedded.session import open_embedded
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.optional_dependencies import install_command
from barnabas.core.scheduler import Background
from barnabas.node.security.zookeeper_security import zookeeper_login, zookeeper_tls

COORDINATION_DIRECTORY = "coordination"

OpenCoordination = Callable[[BrokerConfig, Clock, Background], AbstractAsyncContextManager[Coordination]]


@asynccontextmanager
async def open_coordination(
    config: BrokerConfig, clock: Clock, background: Background
) -> AsyncIterator[Coordination]:
    """The embedded store lives in the first log directory, beside the logs."""
    if config.coordination_socket:
        async with _open_shared(config, Path(config.coordination_socket), clock) as shared:
            yield shared
        return
    if not config.zookeeper_connect:
        path = Path(config.log_dirs[0]) / COORDINATION_DIRECTORY
        async with open_embedded(path, clock, background) as embedded:
            yield embedded
        return
    async with _open_zookeeper(config, clock) as znodes:
        yield znodes


def _open_shared(
    config: BrokerConfig, socket: Path, clock: Clock
) -> AbstractAsyncContextManager[Coordination]:
    # Imported here: a broker on its own, or on ZooKeeper, does not need it.
    from barnabas.cluster.shared.notices import PROCESS_VARIABLE  # noqa: PLC0415
    from barnabas.cluster.shared.session import connect_to, open_shared  # noqa: PLC0415

    return open_shared(
        connect_to(socket),
        str(socket),
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        clock=clock,
        process=os.environ.get(PROCESS_VARIABLE, ""),
    )


async def protect_own_zookeeper(config: BrokerConfig, clock: Clock) -> None:
    """With `zookeeper.set.acl`, let only the brokers change the root of a ZooKeeper that runs for them
    alone."""
    if config.zookeeper_set_acl:
        async with _open_zookeeper(config, clock, owns_server=True):
            pass


@asynccontextmanager
async def _open_zookeeper(
    config: BrokerConfig, clock: Clock, *, owns_server: bool = False
) -> AsyncIterator[Coordination]:
    try:
        from barnabas.cluster.zookeeper import (  # noqa: PLC0415 - an optional dependency
            DigestLogin,
            ServerAccess,
            open_zookeeper,
        )
    except ImportError as error:
        raise InvalidConfig(
            f"zookeeper.connect is set, and the package {error.name} is missing; run"
            f" `{install_command('zookeeper')}`"
        ) from error
    login = zookeeper_login(config)
    access = ServerAccess(
        config.zookeeper_auth,
        None if login is None else DigestLogin(*login),
        await asyncio.to_thread(zookeeper_tls, config),
    )
    async with open_zookeeper(
        config.zookeeper_connect or "",
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        clock=clock,
        access=access,
        set_acl=config.zookeeper_set_acl,
        owns_server=owns_server,
    ) as znodes:
        yield znodes
