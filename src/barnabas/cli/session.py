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

from barnabas.cli.exits import INTERRUPTED, InvalidSettings, Unreachable, failure_for
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.security_settings import SecuritySettings
from barnabas.client.steps import ClusterUnreachable
from barnabas.config.keys import read_properties
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig, KafkaError, NetworkException

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

_CLIENT_PROPERTIES = "barnabas.client_properties"


class Bootstrap(NamedTuple):
    addresses: tuple[Endpoint, ...]
    security: SecuritySettings = SecuritySettings()

    @classmethod
    def of(cls, ctx: click.Context, given: str | None) -> Bootstrap:
        """What the command's options say, else the root's, else the file; ValueError if it is no address."""
        properties: Mapping[str, str] = ctx.meta.get(_CLIENT_PROPERTIES, {})
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


def _read_client_properties(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    path = path or ctx.find_root().params.get("command_config")
    if path is not None:
        try:
            ctx.meta[_CLIENT_PROPERTIES] = read_properties(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise InvalidSettings(f"{path} is not a file of properties") from None


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--bootstrap` and `--command-config`; the command's own wins over the root's, which wins over the
    environment."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_client_properties,
        help="Kafka's client properties: how to reach a secured cluster.  [env: BARNABAS_COMMAND_CONFIG]",
    )(address_option(command))


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
            return await action(cluster)

    try:
        return asyncio.run(connected())
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: is a broker running? start one with 'barnabas start'") from None
    except NetworkException as error:
        raise Unreachable(error.message) from None
    except KafkaError as error:
        raise failure_for(error) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
