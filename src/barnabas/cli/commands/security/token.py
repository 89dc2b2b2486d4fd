"""`barnabas token`: delegation tokens, which log in as their owner for a limited time.

A token is named by its id. Its secret is shown once, at its creation, or written to a file that only its
owner can read.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from barnabas.cli.support.arguments import parse_duration
from barnabas.cli.support.exit_codes import Failure
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, given_properties, run
from barnabas.client.admin.delegation_tokens import BY_THE_BROKER, Token
from barnabas.config.properties import render_properties
from barnabas.core.errors import InvalidRequest
from barnabas.localcluster.secret_files import write_private
from barnabas.security.identity.principal import USER, KafkaPrincipal
from barnabas.security.sasl.client import SCRAM_DIGESTS


@click.group()
def token() -> None:
    """Create, list, renew and expire delegation tokens."""


@token.command()
@click.option("--owner", metavar="User:NAME", help="Owner of the token; default: the current user.")
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="User:NAME",
    help="Another user that may renew it; may be given several times.",
)
@click.option(
    "--lifetime", metavar="TIME", help="Maximum lifetime, such as 12h or 7d; default: the broker's."
)
@click.option(
    "--client-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write client properties with the token to this file, and do not print the secret.",
)
@json_option
@bootstrap_option
@click.pass_context
def create(
    ctx: click.Context,
    owner: str | None,
    renewers: tuple[str, ...],
    lifetime: str | None,
    client_file: Path | None,
    as_json: bool,
    bootstrap: Bootstrap,
) -> None:
    """Create a token. With its id and secret a client logs in as the owner, by SCRAM."""
    whose = None if owner is None else _principal(owner, "--owner")
    others = [_principal(each, "--renewer") for each in renewers]
    lifetime_ms = BY_THE_BROKER if lifetime is None else parse_duration(lifetime, "--lifetime")
    made = run(
        bootstrap,
        lambda admin: admin.create_delegation_token(owner=whose, renewers=others, lifetime_ms=lifetime_ms),
    )
    shown = _shown(made) | ({"secret": made.password} if client_file is None else {})
    if client_file is not None:
        _write(client_file, {**given_properties(ctx), **_login(made, given_properties(ctx))})
        shown["client_file"] = str(client_file)
    if as_json:
        print_json(shown)
        return
    for name, value in shown.items():
        click.echo(f"{name.replace('_', ' ')}: {', '.join(value) if isinstance(value, list) else value}")
    if client_file is None:
        click.echo(f"log in by SCRAM: sasl.jaas.config={_jaas(made)}")


@token.command(name="list", short_help="List the tokens of the current user; never a secret.")
@click.option("--owner", "owners", multiple=True, metavar="User:NAME", help="Only tokens of this owner.")
@json_option
@bootstrap_option
def list_(owners: tuple[str, ...], as_json: bool, bootstrap: Bootstrap) -> None:
    """List the tokens that the current user owns, requested or may renew; never a secret."""
    whose = [_principal(each, "--owner") for each in owners]
    found = [_shown(each) for each in run(bootstrap, lambda admin: admin.describe_delegation_tokens(whose))]
    if as_json:
        print_json(found)
        return
    rows = [[", ".join(each) if isinstance(each, list) else each for each in row.values()] for row in found]
    print_table(("token", "owner", "renewers", "issued", "expires", "renewable until"), rows)


@token.command()
@click.argument("token_id", metavar="TOKEN")
@click.option(
    "--period", metavar="TIME", help="New period from now, such as 12h or 7d; default: the broker's."
)
@bootstrap_option
def renew(token_id: str, period: str | None, bootstrap: Bootstrap) -> None:
    """Renew a token."""
    period_ms = BY_THE_BROKER if period is None else parse_duration(period, "--period")
    expires_ms = run(bootstrap, lambda admin: admin.renew_delegation_token(token_id, period_ms))
    click.echo(f"token {token_id} expires {_moment(expires_ms)}")


@token.command()
@click.argument("token_id", metavar="TOKEN")
@click.option("--after", metavar="TIME", help="Delay from now, such as 30m; default: none.")
@bootstrap_option
def expire(token_id: str, after: str | None, bootstrap: Bootstrap) -> None:
    """Expire a token, at once or after a delay."""
    period_ms = BY_THE_BROKER if after is None else parse_duration(after, "--after")
    expires_ms = run(bootstrap, lambda admin: admin.expire_delegation_token(token_id, period_ms))
    click.echo(
        f"token {token_id} has expired"
        if after is None
        else f"token {token_id} expires {_moment(expires_ms)}"
    )


def _shown(each: Token) -> dict[str, str | list[str]]:
    """Fields of a token without the secret."""
    return {
        "token": each.token_id,
        "owner": str(each.owner),
        "renewers": list(map(str, each.renewers)),
        "issued": _moment(each.issued_ms),
        "expires": _moment(each.expires_ms),
        "renewable_until": _moment(each.max_ms),
    }


def _moment(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms // 1_000, dt.UTC).isoformat().replace("+00:00", "Z")


def _principal(text: str, option: str) -> KafkaPrincipal:
    try:
        found = KafkaPrincipal.parse(text)
    except InvalidRequest as error:
        raise click.BadParameter(error.message, param_hint=option) from None
    if found.kind != USER:
        raise click.BadParameter(f"{text!r} is not a principal such as User:alice", param_hint=option)
    return found


def _jaas(made: Token) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{made.token_id}" password="{made.password}" tokenauth="true";'


def _login(made: Token, given: dict[str, str]) -> dict[str, str]:
    mechanism = given.get("sasl.mechanism", "")
    scram = mechanism if mechanism in SCRAM_DIGESTS else next(iter(SCRAM_DIGESTS))
    return {"sasl.mechanism": scram, "sasl.jaas.config": _jaas(made)}


def _write(path: Path, properties: dict[str, str]) -> None:
    try:
        write_private(path, render_properties(properties))
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}") from None
