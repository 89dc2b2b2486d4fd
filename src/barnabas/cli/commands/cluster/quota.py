"""`barnabas quota`: quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from barnabas.cli.support.arguments import parse_pairs
from barnabas.cli.support.exit_codes import InvalidSettings
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.client_quotas import Entity, EntityQuotas
from barnabas.security.identity.principal import USER

DEFAULT_ENTITY = "default"


def entity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name the entity."""
    for option, entity in (
        ("--ip", "IP address."),
        ("--client-id", "Client id; with --user, of this user only."),
        ("--user", "User name."),
    ):
        command = click.option(
            option,
            metavar="NAME",
            help=f"{entity} '{DEFAULT_ENTITY}' means all without a quota of their own.",
        )(command)
    return command


@click.group()
def quota() -> None:
    """Show and set quotas of users, client ids and addresses."""


@quota.command(name="list")
@entity_options
@json_option
@bootstrap_option
def list_(
    user: str | None, client_id: str | None, ip: str | None, as_json: bool, bootstrap: Bootstrap
) -> None:
    """List quotas: all of them, or those of the given entity."""
    entity = _entity(user, client_id, ip)
    found = run(bootstrap, lambda admin: admin.describe_client_quotas(entity))
    if as_json:
        print_json([{"entity": dict(each.entity), "quotas": dict(each.quotas)} for each in found])
        return
    rows = [
        (*_names(each), key, f"{value:.0f}" if value.is_integer() else str(value))
        for each in found
        for key, value in sorted(each.quotas.items())
    ]
    print_table(("user", "client id", "ip", "quota", "value"), sorted(rows))


@quota.command(name="set")
@click.argument("pairs", nargs=-1, metavar="[QUOTA=VALUE]...")
@click.option("--delete", "removals", multiple=True, metavar="QUOTA", help="Delete a quota.")
@entity_options
@bootstrap_option
def set_(
    pairs: tuple[str, ...],
    removals: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    bootstrap: Bootstrap,
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    QUOTA is producer_byte_rate or consumer_byte_rate (bytes per second), request_percentage (of the broker's
    time), controller_mutation_rate (partitions per second); for an address connection_creation_rate.
    """
    entity = _entity(user, client_id, ip)
    if not entity:
        raise click.UsageError("an entity is missing: give --user, --client-id, both, or --ip")
    changes = {key: _number(key, text) for key, text in parse_pairs(pairs, "QUOTA=VALUE").items()}
    if not changes and not removals:
        raise click.UsageError("nothing to change: give QUOTA=VALUE or --delete QUOTA")
    quotas: dict[str, float | None] = {**changes, **dict.fromkeys(removals)}
    run(bootstrap, lambda admin: admin.alter_client_quotas(entity, quotas))
    click.echo(
        "changed the quotas of "
        + ", ".join(f"{kind} {DEFAULT_ENTITY if name is None else name}" for kind, name in entity.items())
    )


def _entity(user: str | None, client_id: str | None, ip: str | None) -> Entity:
    if user is not None and user.startswith(f"{USER}:"):
        name = user.removeprefix(f"{USER}:")
        raise InvalidSettings(f"--user takes the user name {name}, not the principal {user}")
    named = {"user": user, "client-id": client_id, "ip": ip}
    return {
        kind: None if name == DEFAULT_ENTITY else name for kind, name in named.items() if name is not None
    }


def _names(found: EntityQuotas) -> tuple[str, str, str]:
    user, client_id, ip = (
        ("" if kind not in found.entity else found.entity[kind] or DEFAULT_ENTITY)
        for kind in ("user", "client-id", "ip")
    )
    return user, client_id, ip


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a number", param_hint=key) from None
