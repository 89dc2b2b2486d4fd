"""Console beside `barnabas start`: which listener its clients use, and the file of their properties.

The file is beside the data and holds no login: where the brokers ask for one, the page does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import click

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.properties import render_properties
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.localcluster.local_cluster import BesideCluster
from barnabas.localcluster.secret_files import write_private
from barnabas.node.main import Beside
from barnabas.processes.console_process import (
    READY_PREFIX,
    client_properties,
    console_beside,
    console_command,
)

FILE_NAME = "console.properties"
_TRUSTSTORE = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)


def console_of_broker(address: Endpoint, config: BrokerConfig) -> Beside:
    @asynccontextmanager
    async def beside(listeners: Sequence[ListenerEndpoint]) -> AsyncIterator[None]:
        listener = _choose(listeners)
        command = console_command(
            address,
            [listener.endpoint],
            _client_file(config, listener, config.log_dirs[0]),
            broker_directories=[config.log_dirs[0]],
        )
        async with console_beside(command, _say, SystemClock()):
            yield

    return beside


def console_of_cluster(
    address: Endpoint, properties: Callable[[], Mapping[int, Mapping[str, str]]]
) -> BesideCluster:
    """`properties` are those of each broker, once the cluster has made them."""

    def beside(
        listeners: Sequence[str], say: Callable[[str, str], None]
    ) -> AbstractAsyncContextManager[None]:
        configs = [BrokerConfig.load(each) for each in properties().values()]
        chosen = _choose(configs[0].listeners)
        endpoints = [
            Endpoint.parse(address)
            for name, _, address in (each.partition("://") for each in listeners)
            if name == chosen.listener_name
        ]
        directories = [each.log_dirs[0] for each in configs]
        file = _client_file(configs[0], chosen, directories[0].parent)
        command = console_command(address, endpoints, file, broker_directories=directories)

        def tell(name: str, line: str) -> None:
            if line.startswith(READY_PREFIX):
                _say(name, line)
            else:
                say(name, line)

        return console_beside(command, tell, SystemClock())

    return beside


def _choose(listeners: Sequence[ListenerEndpoint]) -> ListenerEndpoint:
    """The listener of the console's clients: one in the clear if there is one, else the first."""
    return next((each for each in listeners if each.security_protocol == "PLAINTEXT"), listeners[0])


def _client_file(config: BrokerConfig, listener: ListenerEndpoint, directory: Path) -> Path | None:
    if listener.security_protocol == "PLAINTEXT":
        return None
    values = config.values
    truststore = {name: str(values[name]) for name in _TRUSTSTORE if values.get(name)}
    found = client_properties(
        listener.security_protocol, values.get("sasl.enabled.mechanisms") or (), truststore
    )
    path = directory.absolute() / FILE_NAME
    write_private(path, render_properties(found))
    return path


def _say(name: str, line: str) -> None:
    """Print a line of the console: its address to standard output, everything else to standard error."""
    if line.startswith(READY_PREFIX):
        click.echo(f"{name}: {line.removeprefix(READY_PREFIX)}")
    else:
        click.echo(line, err=True)
