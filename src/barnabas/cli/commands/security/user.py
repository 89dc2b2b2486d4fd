"""`barnabas user`: SCRAM users, in a running cluster or in its store.

The password comes from a prompt, or from standard input if that is not a terminal. It never comes from the
command line, which every user of the machine can read.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from barnabas.cli.support.exit_codes import Failure, InvalidSettings, NotFound, failure_for
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.derived import SECURED
from barnabas.core.errors import ClusterAuthorizationFailed, InvalidConfig, KafkaError
from barnabas.protocol.config_numbers import ResourceType
from barnabas.security.credentials.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)
from barnabas.security.http.access import hashed_password

T = TypeVar("T")
MECHANISMS = [each.mechanism_name for each in ScramMechanism]
_USUAL = ScramMechanism.SHA_256
_ENABLED = "sasl.enabled.mechanisms"


_iterations = click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=2 * ITERATIONS_MIN,
    show_default=True,
    help="Iterations of the password hash: more make guessing slower.",
)


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for direct access to the store, without a broker."""
    command = click.option(
        "--zookeeper",
        metavar="HOST:PORT",
        help="Write to ZooKeeper directly, with an optional /chroot, when no broker is running yet.",
    )(command)
    return click.option(
        "--data-dir",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        help="Write to the store in this data directory, of a broker that is not running.",
    )(command)


@click.group()
def user() -> None:
    """Add, list and delete SCRAM users."""


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS),
    help="Mechanism of the credential; may be given twice.  [default: the SCRAM mechanisms of the brokers'"
    f" listeners; {MECHANISMS[0]} where they have none or are not known]",
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

    The password comes from a prompt or from standard input. The request goes to a broker. For the first user
    of a cluster no broker can authenticate a request yet: use --data-dir or --zookeeper.
    """
    password = _password()
    config = _store(zookeeper, data_dir)
    if config is None:

        async def added(admin: Admin) -> tuple[list[ScramMechanism], list[ScramMechanism]]:
            offered, are_all = await _offered(admin, bootstrap)
            wanted = _named(mechanisms) or offered or [_USUAL]
            for mechanism in wanted:
                await admin.upsert_user_scram_credential(name, password, mechanism, iterations)
            return wanted, offered if are_all and offered else wanted

        stored, offered = run(bootstrap, added)
    else:
        from barnabas.localcluster.stored_users import put_user  # noqa: PLC0415 - rarely needed

        stored = offered = _named(mechanisms) or [_of_data_directory(data_dir)]
        for each in stored:
            _in_store(put_user(config, name, each, ScramCredential.derive(each, password, iterations)))
    if usable := [each.mechanism_name for each in stored if each in offered]:
        click.echo(f"user {name} can log in by {', '.join(usable)}")
    for each in stored:
        if each not in offered:
            click.echo(
                f"user {name} has a password for {each.mechanism_name}, which no listener accepts:"
                f" {_ENABLED} has {', '.join(other.mechanism_name for other in offered)}"
            )


@user.command(name="hash", short_help="Print a line for a users file, with a hash of the password.")
@click.argument("name")
@_iterations
def hash_(name: str, iterations: int) -> None:
    """Print a line for a users file (http.users.file), with a hash of the password."""
    click.echo(f"{name}={hashed_password(_password(), iterations)}")


@user.command(name="list")
@json_option
@store_options
@bootstrap_option
def list_(as_json: bool, zookeeper: str | None, data_dir: Path | None, bootstrap: Bootstrap) -> None:
    """List the SCRAM users and their mechanisms; never a credential."""
    config = _store(zookeeper, data_dir, must_exist=True)
    if config is None:
        listed = run(bootstrap, lambda admin: admin.describe_user_scram_credentials())
        found = {each.name: each.iterations for each in listed}
    else:
        from barnabas.localcluster.stored_users import list_users  # noqa: PLC0415 - rarely needed

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
    config = _store(zookeeper, data_dir, must_exist=True)
    if config is None:

        async def deleted(admin: Admin) -> None:
            users = await admin.describe_user_scram_credentials()
            had = [each.iterations for each in users if each.name == name]
            present = [each for each in ScramMechanism if had and each.mechanism_name in had[0]]
            await admin.delete_user_scram_credentials(name, present or list(ScramMechanism))

        run(bootstrap, deleted)
    else:
        from barnabas.localcluster.stored_users import delete_user  # noqa: PLC0415 - rarely needed

        _in_store(delete_user(config, name))
    click.echo(f"user {name} can no longer log in by SCRAM")


def _named(names: Collection[str]) -> list[ScramMechanism]:
    return [each for each in ScramMechanism if each.mechanism_name in names]


async def _offered(admin: Admin, bootstrap: Bootstrap) -> tuple[list[ScramMechanism], bool]:
    """SCRAM mechanisms of the listeners of all brokers, and whether these are all. The mechanism of this
    connection stands in where the settings of a broker may not be read.
    """
    own = bootstrap.security.sasl
    found = set() if own is None else {own.mechanism}
    await admin.cluster.refresh(())
    try:
        for broker_id in list(admin.cluster.state.brokers):
            broker = (ResourceType.BROKER, str(broker_id))
            for setting in (await admin.describe_configs([broker]))[broker]:
                if setting.name.endswith(_ENABLED) and setting.value:
                    found.update(each.strip().upper() for each in setting.value.split(","))
    except ClusterAuthorizationFailed:
        return _named(found), False  # the change of the user is authorized apart
    return _named(found), True


def _of_data_directory(directory: Path | None) -> ScramMechanism:
    """Mechanism of `start --secure`, if it has made the directory."""
    if directory is None or not (directory / SECURED).exists():
        return _USUAL
    from barnabas.localcluster.secure_setup import MECHANISM  # noqa: PLC0415 - optional dependencies

    return MECHANISM


def _password() -> str:
    if sys.stdin.isatty():
        password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise InvalidSettings("the password is empty: type it, or give it on standard input")
    return password


def _store(zookeeper: str | None, data_dir: Path | None, *, must_exist: bool = False) -> BrokerConfig | None:
    """Settings of the store. None means that a broker is asked."""
    if zookeeper is not None and data_dir is not None:
        raise click.UsageError("--zookeeper and --data-dir exclude each other")
    if zookeeper is None and data_dir is None:
        return None
    if data_dir is not None and (data_dir / "zookeeper" / "version-2").is_dir():
        raise InvalidSettings(
            f"the users of {data_dir} are in its ZooKeeper: leave --data-dir out to ask a broker"
        )
    from barnabas.node.membership.coordination_store import COORDINATION_DIRECTORY  # noqa: PLC0415 - likewise

    if must_exist and data_dir is not None and not (data_dir / COORDINATION_DIRECTORY).is_dir():
        raise NotFound(f"{data_dir} holds no data of a broker: check --data-dir")
    given = {"zookeeper.connect": zookeeper} if zookeeper is not None else {"log.dirs": str(data_dir)}
    try:
        return BrokerConfig.load({"broker.id": "0", **given})
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None


def _in_store(work: Coroutine[Any, Any, T]) -> T:
    from barnabas.cluster.coordination.contract import CoordinationError, StoreLocked  # noqa: PLC0415 - likewise

    try:
        return asyncio.run(work)
    except StoreLocked:
        raise Failure("a broker has this store open: leave --data-dir out to ask the broker") from None
    except CoordinationError as error:
        raise Failure(f"the store cannot be reached: {error!r}") from None
    except KafkaError as error:
        raise failure_for(error) from None
