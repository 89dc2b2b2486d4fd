"""Broker connection of a command: bootstrap addresses, security settings, errors.

`--command-config` names a file of Kafka's client properties. Its security settings count, and its
`bootstrap.servers` where no address is given. Passwords come from that file or by reference, and never from
the command line, which every user of the machine can read.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from barnabas.cli.support.connection_hints import advice, login_is_missing
from barnabas.cli.support.exit_codes import INTERRUPTED, InvalidSettings, Unreachable, failure_for
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.security.settings import SecurityProtocol, SecuritySettings
from barnabas.config.properties import read_properties
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig, KafkaError, NetworkException

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

_CLIENT_PROPERTIES = "barnabas.client_properties"
_CLIENT_FILE = "barnabas.client_file"


class Bootstrap(NamedTuple):
    addresses: tuple[Endpoint, ...]
    security: SecuritySettings = SecuritySettings()

    @classmethod
    def of(cls, ctx: click.Context, given: str | None) -> Bootstrap:
        """Bootstrap from the command's option, else the root's, else the file. ValueError if it is no
        address.
        """
        properties = given_properties(ctx)
        text = given or ctx.find_root().params.get("bootstrap") or properties.get("bootstrap.servers")
        addresses = tuple(
            Endpoint.parse(part) for part in (text or DEFAULT_BOOTSTRAP).split(",") if part.strip()
        )
        return cls(addresses, SecuritySettings.parse(properties))


def _resolve(ctx: click.Context, _: click.Parameter, value: str | None) -> Bootstrap:
    try:
        return Bootstrap.of(ctx, value)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap") from None
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None


def given_properties(ctx: click.Context) -> dict[str, str]:
    """Properties in the file of `--command-config`."""
    found: Mapping[str, str] = ctx.meta.get(_CLIENT_PROPERTIES, {})
    return dict(found)


def given_file(ctx: click.Context) -> Path | None:
    found: Path | None = ctx.meta.get(_CLIENT_FILE)
    return found


def _read_client_properties(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    path = path or ctx.find_root().params.get("command_config")
    if path is not None:
        ctx.meta[_CLIENT_PROPERTIES], ctx.meta[_CLIENT_FILE] = properties_of(path), path


def properties_of(path: Path) -> dict[str, str]:
    try:
        return read_properties(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidSettings(f"{path} is not a properties file: it is not UTF-8 text") from None
    except ValueError as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from None


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--bootstrap` and `--command-config`. The command's own option wins over the root's, which wins
    over the environment.
    """
    return properties_option(address_option(command))


def properties_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--command-config` alone."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_client_properties,
        help="Client properties file, for a secured cluster.  [env: BARNABAS_COMMAND_CONFIG]",
    )(command)


def address_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--bootstrap` alone."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        callback=_resolve,
        help="Bootstrap brokers, separated by commas.  [env: BARNABAS_BOOTSTRAP;"
        f" default: {DEFAULT_BOOTSTRAP}]",
    )(command)


def client_of(bootstrap: Bootstrap) -> ClusterClient:
    try:
        security = bootstrap.security.secured()
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None
    return ClusterClient(
        bootstrap.addresses, clock=SystemClock(), randomness=random.SystemRandom(), security=security
    )


def run(bootstrap: Bootstrap, action: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Connect, run the action, disconnect. Errors become a message and an exit code."""

    async def connected() -> T:
        async with client_of(bootstrap) as cluster:
            if bootstrap.security.sasl is None:
                await _meet(cluster, bootstrap.security.protocol)
            return await action(cluster)

    try:
        return asyncio.run(connected())
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: {advice(str(error), bootstrap.security.protocol)}") from None
    except NetworkException as error:
        raise Unreachable(error.message) from None
    except KafkaError as error:
        raise failure_for(error) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


async def _meet(cluster: ClusterClient, protocol: SecurityProtocol) -> None:
    """Send the first Metadata request. A listener that requires a login closes the connection with it, which
    is not worth half a minute of retries. The command itself meets and retries any other error.
    """
    for is_last in (False, True):
        try:
            await cluster.refresh(())
        except NetworkException as error:
            if is_last:
                raise Unreachable(f"{error.message}: {login_is_missing(protocol)}") from None
        except (KafkaError, ClusterUnreachable):
            return
        else:
            return
