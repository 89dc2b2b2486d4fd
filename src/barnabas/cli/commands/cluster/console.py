"""`barnabas console`: a web page that shows a cluster and changes it."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from barnabas.cli.support.arguments import parse_address
from barnabas.cli.support.console_clusters import OPTION, ClusterOfConsole, clusters_of
from barnabas.cli.support.exit_codes import Failure, InvalidSettings
from barnabas.cli.support.session import (
    DEFAULT_BOOTSTRAP,
    addresses_of,
    given_properties,
    properties_option,
)
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig
from barnabas.core.optional_dependencies import install_command
from barnabas.node.log_output import configure_logging

DEFAULT_ADDRESS = "127.0.0.1:8080"
NICENESS_BESIDE_A_BROKER = 10
"""A page that draws a thousand rows must not hold the processor that a produce request waits for."""


@click.command()
@properties_option
@click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    help=f"Bootstrap brokers, separated by commas.  [env: BARNABAS_BOOTSTRAP; default: {DEFAULT_BOOTSTRAP}]",
)
@click.option(
    "--cluster",
    "clusters",
    multiple=True,
    metavar="NAME=HOST:PORT",
    help="One of several clusters, instead of --bootstrap; NAME=FILE for one with client properties. May be"
    " repeated.",
)
@click.option(
    "--listen",
    "address",
    metavar="HOST:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    help="Address of the page.",
)
@click.option("--read-only", is_flag=True, help="Show everything and change nothing.")
@click.option(
    "--token",
    envvar="BARNABAS_CONSOLE_TOKEN",
    metavar="TEXT",
    help="Token that a browser must show.  [env: BARNABAS_CONSOLE_TOKEN]",
)
@click.option("--pipelines", "pipelines_url", metavar="URL", help="REST address of the pipeline service.")
@click.option(
    "--schema-registry",
    "--registry",
    "registry_url",
    envvar="BARNABAS_SCHEMA_REGISTRY",
    metavar="URL",
    help="Schema registry, for the schemas and the records by them.  [env: BARNABAS_SCHEMA_REGISTRY]",
)
@click.option(
    "--proto",
    "proto_files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Schema of Protobuf that no registry has: a .proto file or a descriptor set. May be repeated.",
)
@click.option(
    "--proto-message",
    "proto_messages",
    multiple=True,
    metavar="TOPIC=MESSAGE",
    help="Message of a topic's values; TOPIC:key=MESSAGE for its keys. May be repeated.",
)
@click.option(
    "--broker-directory",
    "broker_directories",
    multiple=True,
    hidden=True,
    type=click.Path(path_type=Path),
    help="Data directory of a broker of this machine.",
)
@click.option(
    "--mcp",
    "mcp_text",
    metavar="TOOLS",
    help="Tools for agents at /mcp (Model Context Protocol): `all`, or names separated by commas. They read.",
)
@click.option(
    "--edit",
    "edited",
    multiple=True,
    type=click.Choice(["schemas", "pipelines"]),
    help="Let visitors change schemas, or make, configure and delete pipelines, by the console's own access."
    " May be repeated.",
)
@click.option(
    "--mask",
    "masks",
    multiple=True,
    metavar="TOPIC=FIELDS",
    help="Fields of values that no visitor sees: `customers=email,card.number`; `*` for all of a value."
    " TOPIC may have wildcards; TOPIC:key= and TOPIC:headers= mask keys and headers. May be repeated.",
)
@click.option("--beside-broker", is_flag=True, hidden=True, help="Log as a child of a broker.")
def console(
    bootstrap: str | None,
    clusters: tuple[str, ...],
    address: str,
    read_only: bool,
    token: str | None,
    pipelines_url: str | None,
    registry_url: str | None,
    proto_files: tuple[Path, ...],
    proto_messages: tuple[str, ...],
    broker_directories: tuple[Path, ...],
    mcp_text: str | None,
    edited: tuple[str, ...],
    masks: tuple[str, ...],
    beside_broker: bool,
) -> None:
    """Serve a web page that shows a cluster and changes it.

    It works with any Kafka: it asks the brokers at --bootstrap. On a cluster with users, each visitor signs
    in with a name and password, and every change is made as that user. With a login in --command-config all
    visitors share that one, and the page asks for a token, which is printed.

    With --cluster, repeated, one console has several clusters, and a page that lists them.

    The address is of this machine alone, unless --command-config has keys for TLS
    (listener.name.console.ssl.keystore.location) or allows it in the clear (http.open=true).
    """
    endpoint = parse_address(address, "--listen")
    configure_logging("info")
    if beside_broker:
        os.nice(NICENESS_BESIDE_A_BROKER)
    try:
        from barnabas.console.opening import Opening  # noqa: PLC0415 - not for --help
        from barnabas.console.server import AddressTaken, listen, serve  # noqa: PLC0415
    except ImportError as error:
        raise Failure(
            f"the console needs {error.name}: install it with {install_command('console')}"
        ) from None
    if clusters:
        _refuse_of_one_cluster(bootstrap, pipelines_url, registry_url, broker_directories)
    found = _clusters(bootstrap, clusters)
    names = [each.name for each in found if each.name]
    served = []
    for each in found:
        try:
            opening = Opening.of(each.properties, each.bootstrap)
            one = opening.served(
                endpoint,
                SystemClock(),
                is_read_only=read_only,
                token=token or (secrets.token_urlsafe(16) if opening.needs_token else None),
                pipelines_url=pipelines_url,
                registry_url=registry_url,
                proto_files=proto_files,
                proto_messages=proto_messages,
                broker_directories=broker_directories,
                mcp_tools=_mcp_tools(mcp_text),
                edited=edited,
                masks=masks,
                name=each.name,
                clusters=names,
            )
        except InvalidConfig as error:
            raise InvalidSettings(f"{OPTION} {each.name}: {error}" if each.name else error.message) from None
        served.append(one)
    try:
        listener = listen(endpoint)
    except AddressTaken as error:
        choose = "start the broker with another --console" if beside_broker else "choose another --listen"
        raise Failure(f"console: {error}; stop what uses the address, or {choose}") from None
    url = f"{served[0].security.scheme}://{listener.bound.endpoint}"
    entrances = {
        each.settings.name: f"{url}{each.settings.base}/sign-in?token={each.settings.token}"
        for each in served
        if each.settings.token is not None and token is None
    }

    def ready() -> None:
        for name in names:
            if name in entrances:
                click.echo(f"console of {name}: {entrances[name]}")
        click.echo(f"console ready: {entrances.get('', url)}")
        sys.stdout.flush()

    asyncio.run(serve(listener, served, ready=ready))


def _clusters(bootstrap: str | None, given: Sequence[str]) -> list[ClusterOfConsole]:
    """The given clusters, or the one at the bootstrap addresses."""
    ctx = click.get_current_context()
    properties = given_properties(ctx)
    if given:
        return clusters_of(given, properties)
    try:
        return [ClusterOfConsole("", addresses_of(ctx, bootstrap), properties)]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap") from None


def _refuse_of_one_cluster(*given: object) -> None:
    options = ("--bootstrap", "--pipelines", "--schema-registry", "--broker-directory")
    keys = ("bootstrap.servers", "console.pipelines.url", "schema.registry.url", None)
    for option, key, value in zip(options, keys, given, strict=True):
        if value:
            instead = f": write {key} into the file of {OPTION} NAME=FILE" if key else ""
            raise InvalidSettings(f"{option} is of one cluster, and {OPTION} gives several{instead}")


def _mcp_tools(text: str | None) -> tuple[str, ...]:
    """Names of the tools that agents may use."""
    from barnabas.console.mcp.tools import TOOL_NAMES  # noqa: PLC0415 - not for --help

    if text is None:
        return ()
    names = TOOL_NAMES if text.strip() == "all" else tuple(each.strip() for each in text.split(","))
    unknown = [name for name in names if name not in TOOL_NAMES]
    if unknown:
        raise click.BadParameter(
            f"no tool {unknown[0]!r}; `all`, or some of {', '.join(TOOL_NAMES)}", param_hint="--mcp"
        )
    return names
