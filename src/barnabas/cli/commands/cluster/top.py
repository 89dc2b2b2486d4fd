"""`barnabas top`: brokers, topics and groups of a cluster, live in the terminal."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from barnabas.cli.support.connection_hints import advice
from barnabas.cli.support.exit_codes import INTERRUPTED, Unreachable, failure_for
from barnabas.cli.support.session import Bootstrap, bootstrap_option
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError


@click.command()
@bootstrap_option
@click.option(
    "--data-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Data directory of a broker or cluster of this machine: ask at its local socket.",
)
@click.option("--user", metavar="NAME", help="At the local socket: show what this user may see.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3_600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two pictures.",
)
@click.option("--once", is_flag=True, help="Print one picture and end.")
def top(bootstrap: Bootstrap, data_dir: Path | None, user: str | None, interval: float, once: bool) -> None:
    """Show brokers, topics and groups live: traffic, sizes, lag in records and in time.

    It works with any Kafka. Brokers of this machine answer at a local socket, which is quicker and knows
    more. Keys choose the order: the last line names them. `q` quits.
    """
    from barnabas.cli.top.live import run_live, run_once  # noqa: PLC0415 - rich is slow to import

    principal = None if user is None else f"User:{user}"
    is_live = not once and sys.stdin.isatty() and sys.stdout.isatty()
    try:
        if is_live:
            asyncio.run(run_live(bootstrap, data_dir, principal, interval))
        else:
            asyncio.run(run_once(bootstrap, data_dir, principal))
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: {advice(str(error), bootstrap.security.protocol)}") from None
    except KafkaError as error:
        raise failure_for(error) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
