"""Web console as a child process beside a broker or a cluster.

It starts when the brokers accept connections, so their start takes no longer, and a page that takes long
holds no broker. A console that cannot start says why in one line; the brokers go on without it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock
from barnabas.processes.child_process import Child, ChildEnded, Say
from barnabas.processes.supervisor import RESTART_BACKOFF, Keeper

READY_PREFIX: Final = "console ready: "
_BY_VISITORS: Final = ("PLAIN", "OAUTHBEARER")
"""Mechanisms that visitors of the page sign in by, beside SCRAM."""
STOP_TIMEOUT_S: Final = 5.0
_EVERY_INTERFACE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared, not bound


class ConsoleMember:
    """A `supervisor.Member`."""

    name = "console"
    restart_backoff = RESTART_BACKOFF

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    async def launch(self, say: Say) -> Child:
        return await Child.start(self.name, self._command, say, lambda line: line.startswith(READY_PREFIX))

    async def until_ready(self, child: Child) -> None:
        await child.wait_ready()

    def ended(self) -> None:
        """Its address is free again."""


def console_command(
    address: Endpoint,
    brokers: Sequence[Endpoint],
    client_file: Path | None,
    *,
    broker_directories: Sequence[Path] = (),
) -> list[str]:
    """Command of a console for these brokers. `client_file` has the properties of its clients; in the
    directories are the sockets that brokers of this machine answer at.
    """
    bootstrap = ",".join(str(_reachable(each)) for each in brokers)
    command = [sys.executable, "-m", "barnabas", "console", "--beside-broker"]
    command += ["--bootstrap", bootstrap, "--listen", str(address)]
    for each in broker_directories:
        command += ["--broker-directory", str(each.absolute())]
    return command if client_file is None else [*command, "--command-config", str(client_file)]


@asynccontextmanager
async def console_beside(
    command: Sequence[str], tell: Callable[[str, str], None], clock: Clock
) -> AsyncIterator[None]:
    """Keep a console running. `tell` receives its name and the lines that it prints."""
    keeper = Keeper(ConsoleMember(command), tell, clock)
    keeper.start()
    starting = asyncio.create_task(_started(keeper, tell))
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await keeper.stop(STOP_TIMEOUT_S)


async def _started(keeper: Keeper, tell: Callable[[str, str], None]) -> None:
    try:
        await keeper.wait_ready()
    except ChildEnded as error:
        if "was ended by" in str(error):  # it had no time to say why
            tell(keeper.name, f"{error}; the brokers go on without it")
    except OSError as error:
        tell(keeper.name, f"cannot be started: {error}; the brokers go on without it")


def client_properties(
    protocol: str, mechanisms: Sequence[str], truststore: Mapping[str, str]
) -> dict[str, str]:
    """Properties of the console's clients for a listener: without a login, which its users bring."""
    found = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        found |= {name: text for name, text in truststore.items() if name.startswith("ssl.truststore.")}
    if protocol.startswith("SASL"):
        by_visitors = [each for each in mechanisms if each.startswith("SCRAM-") or each in _BY_VISITORS]
        if by_visitors:
            found["sasl.mechanism"] = by_visitors[0]
            found["listener.name.console.sasl.enabled.mechanisms"] = ",".join(by_visitors)
    return found


def _reachable(endpoint: Endpoint) -> Endpoint:
    return endpoint._replace(host=_EVERY_INTERFACE.get(endpoint.host, endpoint.host))
