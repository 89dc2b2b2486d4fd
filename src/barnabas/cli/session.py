"""What every command that talks to a broker has in common: where it is, and how it fails."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from barnabas.cli.exits import INTERRUPTED, Unreachable, failure_for
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, NetworkException

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = tuple[Endpoint, ...]


def _resolve(ctx: click.Context, _: click.Parameter, value: str | None) -> Bootstrap:
    text = value or ctx.find_root().params.get("bootstrap") or DEFAULT_BOOTSTRAP
    try:
        return parse_bootstrap(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap") from None


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--bootstrap`; the command's own wins over the root's, which wins over the environment."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        callback=_resolve,
        help="A broker to begin with; several separated by commas.  [env: BARNABAS_BOOTSTRAP;"
        f" default: {DEFAULT_BOOTSTRAP}]",
    )(command)


def parse_bootstrap(text: str) -> Bootstrap:
    return tuple(Endpoint.parse(part) for part in text.split(",") if part.strip())


def run(bootstrap: Bootstrap, action: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Connect, act, disconnect; errors become a line for a person and an exit code."""

    async def connected() -> T:
        cluster = ClusterClient(bootstrap, clock=SystemClock(), randomness=random.SystemRandom())
        async with cluster:
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
