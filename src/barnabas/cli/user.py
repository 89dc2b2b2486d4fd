"""`barnabas user`: users that log in by SCRAM, in a running cluster or in its store.

A password is asked for, or read from standard input where that is no terminal; never taken from the command
line, where everybody on the machine could read it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from barnabas.cli.exits import Failure, InvalidSettings, failure_for
from barnabas.cli.output import json_option, print_json, print_table
from barnabas.cli.session import Bootstrap, bootstrap_option, run
from barnabas.client.scram_users import ScramUsers
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.errors import InvalidConfig, KafkaError
from barnabas.security.credentials.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)
from barnabas.security.http_access import hashed_password

T = TypeVar("T")
MECHANISMS = [each.mechanism_name for each in ScramMechanism]


_iterations = click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=2 * ITERATIONS_MIN,
    show_default=True,
    help="How much work it is to guess a password.",
)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where the store is, for who means that and no broker."""
    command = click.option(
        "--zookeeper",
        metavar="HOST:PORT",
        help="Use ZooKeeper itself, with an optional /chroot: where no broker runs yet that could be asked.",
    )(command)
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        help="Use the store in this data directory, of a broker that is down or was never started.",
    )(command)


@click.group()
def user() -> None:
    """Add, list and delete users that log in by SCRAM."""


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS),
    default=MECHANISMS[:1],
    show_default=True,
    help="How the user logs in; may be given twice.",
)
@_iterations
@store_options
@bootstrap_option
def add(
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    zookeeper: str | None,
    data_dir: Path | None,
    bootstrap: Bootstrap,
) -> None:
    """Add a user, or change the password of one.

    The password is asked for, or read from standard input. A broker is asked to do it; the first user of a
    cluster, whom no broker could let in, is put into its store by --data-dir or --zookeeper.
    """
    password = _password()
    config = _store(zookeeper, data_dir)
    wanted = [each for each in ScramMechanism if each.mechanism_name in mechanisms]
    if config is None:

        async def added(users: ScramUsers) -> None:
            for mechanism in wanted:
                await users.put(name, mechanism, password, iterations)

        run(bootstrap, lambda cluster: added(ScramUsers(cluster)))
    else:
        from barnabas.node.stored_users import put_user  # noqa: PLC0415 - most commands ask a broker

        for each in wanted:
            _in_store(put_user(config, name, each, ScramCredential.derive(each, password, iterations)))
    click.echo(f"user {name} can log in by {', '.join(mechanisms)}")


@user.command(name="hash")
@click.argument("name")
@_iterations
def hash_(name: str, iterations: int) -> None:
    """Print a line for a file of users (http.users.file) that proves the password without being it."""
    click.echo(f"{name}={hashed_password(_password(), iterations)}")


@user.command(name="list")
@json_option
@store_options
@bootstrap_option
def list_(as_json: bool, zookeeper: str | None, data_dir: Path | None, bootstrap: Bootstrap) -> None:
    """Show who can log in by SCRAM, and how; never a credential."""
    config = _store(zookeeper, data_dir)
    if config is None:
        listed = run(bootstrap, lambda cluster: ScramUsers(cluster).list())
        found = {each.name: each.iterations for each in listed}
    else:
        from barnabas.node.stored_users import list_users  # noqa: PLC0415 - most commands ask a broker

        found = _in_store(list_users(config))
    if as_json:
        print_json(found)
        return
    rows = [
        (name, mechanism, str(iterations))
        for name, by_mechanism in sorted(found.items())
        for mechanism, iterations in by_mechanism.items()
    ]
    print_table(("user", "mechanism", "iterations"), rows)


@user.command()
@click.argument("name")
@store_options
@bootstrap_option
def delete(name: str, zookeeper: str | None, data_dir: Path | None, bootstrap: Bootstrap) -> None:
    """Delete all SCRAM credentials of a user."""
    config = _store(zookeeper, data_dir)
    if config is None:

        async def deleted(users: ScramUsers) -> None:
            had = [each.iterations for each in await users.list() if each.name == name]
            present = [each for each in ScramMechanism if had and each.mechanism_name in had[0]]
            await users.delete(name, present or list(ScramMechanism))

        run(bootstrap, lambda cluster: deleted(ScramUsers(cluster)))
    else:
        from barnabas.node.stored_users import delete_user  # noqa: PLC0415 - most commands ask a broker

        _in_store(delete_user(config, name))
    click.echo(f"user {name} can no longer log in by SCRAM")


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise InvalidSettings("a password is needed: type it, or give it on standard input")
    return password


def _store(zookeeper: str | None, data_dir: Path | None) -> BrokerConfig | None:
    """None: a broker is to be asked."""
    if zookeeper is not None and data_dir is not None:
        raise click.UsageError("--zookeeper and --data-dir exclude each other")
    if zookeeper is None and data_dir is None:
        return None
    given = {"zookeeper.connect": zookeeper} if zookeeper is not None else {"log.dirs": str(data_dir)}
    try:
        return BrokerConfig.load({"broker.id": "0", **given})
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None


def _in_store(work: Coroutine[Any, Any, T]) -> T:
    from barnabas.cluster.coordination import CoordinationError, StoreLocked  # noqa: PLC0415 - likewise

    try:
        return asyncio.run(work)
    except StoreLocked:
        raise Failure("a broker has this store open: leave --data-dir out to ask the broker") from None
    except CoordinationError as error:
        raise Failure(f"the store cannot be reached: {error!r}") from None
    except KafkaError as error:
        raise failure_for(error) from None
