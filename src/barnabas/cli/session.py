"""What every command that talks to a broker has in common: where it is, how it is reached, and how it fails.

`--command-config` names a file of Kafka's client properties, of which those about security count, and
`bootstrap.servers` where no address is given. Passwords are read from there, or by reference, and never from
the command line, where everybody on the machine could read them.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from barnabas.cli.advice import advice, login_is_missing
from barnabas.cli.exits import INTERRUPTED, InvalidSettings, Unreachable, failure_for
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.security_settings import SecurityProtocol, SecuritySettings
from barnabas.client.steps import ClusterUnreachable
from barnabas.config.properties import read_properties
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
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
        """What the command's options say, else the root's, else the file; ValueError if it is no address."""
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
    """Of the file that `--command-config` names."""
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
        raise InvalidSettings(f"{path} is not a file of properties") from None
    except ValueError as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from None


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--bootstrap` and `--command-config`; the command's own wins over the root's, which wins over the
    environment."""
    return properties_option(address_option(command))


def properties_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--command-config` alone."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_client_properties,
        help="Kafka's client properties: how to reach a secured cluster.  [env: BARNABAS_COMMAND_CONFIG]",
    )(command)


def address_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--bootstrap` alone."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        callback=_resolve,
        help="A broker to begin with; several separated by commas.  [env: BARNABAS_BOOTSTRAP;"
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
    """Connect, act, disconnect; errors become a line for a person and an exit code."""

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
    """Ask what every broker answers. One that wants a login first closes the connection; that is not worth
    half a minute of retries. Anything else is for the command to meet, and to try again."""
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
