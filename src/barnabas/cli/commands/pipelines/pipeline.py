"""`barnabas pipeline`: validate specs, run one here, or manage those of the pipeline service."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from barnabas.cli.commands.pipelines.pipeline_export import export_pipeline
from barnabas.cli.commands.pipelines.pipeline_project import describe_project, load_project, start_project
from barnabas.cli.commands.pipelines.pipeline_run import run
from barnabas.cli.commands.pipelines.pipeline_spec import (
    beginning,
    check_master,
    describe,
    load_file,
    master_option,
    require_spark,
    state_option,
    what_to_install,
)
from barnabas.cli.support.arguments import parse_address, parse_partition_offset
from barnabas.cli.support.connection_hints import advice
from barnabas.cli.support.exit_codes import Failure, InvalidSettings, NotFound, Unreachable
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.pipeline_client import Service, ask, path_of
from barnabas.cli.support.session import (
    Bootstrap,
    bootstrap_option,
    given_file,
    given_properties,
    properties_of,
    properties_option,
)
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.security.settings import SecurityProtocol
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig
from barnabas.node.log_output import configure_logging
from barnabas.pipelines.spec.declarative.project import is_project
from barnabas.pipelines.spec.own_cluster import of_properties
from barnabas.security.http.token import LocalToken

DEFAULT_URL = "http://127.0.0.1:8083"

STOP_PATIENCE_MS = 60_000
STOP_POLL_S = 0.2


def _url(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url` and `--command-config`, which become `service`."""
    with_url = click.option(
        "--url",
        "service",
        envvar="BARNABAS_PIPELINES",
        default=DEFAULT_URL,
        show_default=True,
        metavar="URL",
        callback=_service,
        help="Address of the pipeline service.  [env: BARNABAS_PIPELINES]",
    )
    return properties_option(with_url(command))


def _service(ctx: click.Context, _: click.Parameter, url: str) -> Service:
    try:
        return Service.of(url, given_properties(ctx))
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None


_name = click.argument("name")


@click.group()
def pipeline() -> None:
    """Run and manage data pipelines on Spark.

    `validate` and `run` work on a spec file here. The others ask the service that `serve` starts.
    """


pipeline.add_command(run)


@pipeline.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Validate specs and declarative projects without starting Spark."""
    failed = 0
    for file in files:
        try:
            name, description = _validated(file)
        except (InvalidSettings, NotFound) as error:
            failed = failed or error.exit_code
            click.echo(error.message, err=True)
        else:
            click.echo(f"{file}: {name} is valid: {description}")
    sys.exit(failed)


def _validated(file: Path) -> tuple[str, str]:
    """Name and description of the pipeline in a file."""
    if is_project(file):
        project = load_project(file)
        return project.name, describe_project(project)
    spec = load_file(file)[0]
    return spec.name, describe(spec)


def _print_address(url: str, token: LocalToken | None) -> None:
    """Print token and address. The line with the address comes last: programs wait for it."""
    if token is not None:
        click.echo(f"token {token.token}")
        click.echo(
            f"commands on this machine read it from {token.file};"
            " other clients send Authorization: Bearer <token>"
        )
    click.echo(f"barnabas pipelines listen on {url}")


@pipeline.command(short_help="Keep pipelines running, with Kafka Connect's REST API.")
@click.option("--listen", default="127.0.0.1:8083", show_default=True, metavar="HOST:PORT")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Properties that secure the interface: http.users.file, listener.name.rest.ssl.*.",
)
@click.option(
    "--tables",
    multiple=True,
    metavar="DIR|URL",
    help="Topics may have tables (barnabas.table) here. Default: anywhere, and nowhere on a secured cluster.",
)
@click.option(
    "--projects",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Declarative projects may be here. Default: anywhere if the service requires its own token.",
)
@state_option
@master_option
@bootstrap_option
@click.pass_context
def serve(
    ctx: click.Context,
    listen: str,
    config_file: Path | None,
    tables: tuple[str, ...],
    projects: tuple[Path, ...],
    state: str,
    master: str | None,
    bootstrap: Bootstrap,
) -> None:
    """Keep pipelines running, and serve Kafka Connect's REST interface.

    On loopback the service requires a token, which it prints (BARNABAS_PIPELINES_TOKEN sets one). On any
    other address it needs TLS and authentication (docs/SECURITY.md).
    """
    require_spark()
    try:
        from barnabas.pipelines.service.http.server import (  # noqa: PLC0415 - optional dependencies
            AddressTaken,
            OwnCluster,
        )
        from barnabas.pipelines.service.http.server import serve as serve_forever  # noqa: PLC0415
        from barnabas.pipelines.service.topic_tables import Allowed  # noqa: PLC0415
    except ImportError:
        raise InvalidSettings(what_to_install()) from None
    endpoint = parse_address(listen, "--listen")
    if not endpoint.host:
        raise click.BadParameter(f"{listen!r} is not of the form HOST:PORT", param_hint="--listen")
    if master is not None:
        check_master(master)
    state_directory = str(Path(state).absolute()) if "://" not in state else state
    configure_logging("info")
    file = given_file(ctx)
    is_open = bootstrap.security.protocol is SecurityProtocol.PLAINTEXT
    settings = {} if file is None else of_properties(given_properties(ctx), file)

    try:
        asyncio.run(
            serve_forever(
                OwnCluster(bootstrap.addresses, bootstrap.security, bootstrap.config, settings),
                state_directory,
                endpoint=endpoint,
                properties=properties_of(config_file) if config_file is not None else {},
                master=master,
                tables=Allowed(tables, is_anywhere=is_open and not tables),
                projects=projects,
                ready=_print_address,
            )
        )
    except AddressTaken as error:
        raise Failure(str(error)) from None
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: {advice(str(error), bootstrap.security.protocol)}") from None


@pipeline.command(short_help="Start the spec in a file, or a pipeline of the service.")
@click.argument("what", metavar="FILE|NAME")
@_url
def start(what: str, service: Service) -> None:
    """Send the spec in FILE to the service and start it, or start the pipeline NAME of the service.

    FILE may be the spark-pipeline.yml of a declarative project on the service's machine.
    """
    file = Path(what)
    if not file.is_file():
        ask(service, "PUT", path_of(what, "resume"))
        click.echo(f"started {what}")
        return
    if is_project(file):
        click.echo(f"started {start_project(file, service)}: Spark updates it when there are new records")
        return
    spec = load_file(file)[0]
    config = {
        "connector.class": "Pipeline",
        "name": spec.name,
        "pipeline.spec": file.read_text(encoding="utf-8"),
    }
    is_new = spec.name not in ask(service, "GET", "/connectors")
    ask(service, "PUT", path_of(spec.name, "config"), config)
    ask(service, "PUT", path_of(spec.name, "resume"))
    where = f"begins {beginning(spec)}" if is_new else "continues from its checkpoint"
    click.echo(f"started {spec.name}: it {where}")


def _steering(verb: str, done: str, help_text: str, *, method: str = "PUT", query: str = "") -> None:
    """Add a command that only passes its name on to the service."""

    @pipeline.command(name=verb, help=help_text)
    @_name
    @_url
    def steer(name: str, service: Service) -> None:
        ask(service, method, path_of(name, verb) + query)
        click.echo(f"{done} {name}")


_steering("stop", "stopped", "Stop NAME. Its offsets can be changed while it is stopped.")
_steering("pause", "paused", "Pause NAME: the query ends, the checkpoint stays.")
_steering("resume", "resumed", "Resume NAME from its checkpoint.")
_steering(
    "restart",
    "restarted",
    "Restart NAME, from any state.",
    method="POST",
    query="?includeTasks=true",
)


@pipeline.command()
@_name
@_url
def delete(name: str, service: Service) -> None:
    """Delete NAME. Its output stays."""
    ask(service, "DELETE", path_of(name))
    click.echo(f"deleted {name}")


@pipeline.command()
@_name
@_url
def reset(name: str, service: Service) -> None:
    """Reset NAME to the start position of its spec. Its output stays."""
    before = ask(service, "GET", path_of(name, "status"))["pipeline"]["state"]
    ask(service, "PUT", path_of(name, "stop"))
    end = SystemClock().now_ms() + STOP_PATIENCE_MS
    while ask(service, "GET", path_of(name, "status"))["pipeline"]["state"] != "STOPPED":
        if SystemClock().now_ms() > end:
            raise Failure(f"{name} did not stop in time, and its offsets are unchanged: try again")
        time.sleep(STOP_POLL_S)
    ask(service, "DELETE", path_of(name, "offsets"))
    if before in ("STOPPED", "PAUSED"):
        click.echo(f"reset {name}: it is stopped, and will start at the position of its spec")
        return
    ask(service, "PUT", path_of(name, "resume"))
    click.echo(f"reset {name}: it starts again at the position of its spec")


@pipeline.command(short_help="Print a YAML pipeline as declarative Python.")
@click.argument("what", metavar="FILE|NAME")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the project (spark-pipeline.yml and Python) into DIR instead.",
)
@click.option(
    "--bootstrap",
    envvar="BARNABAS_BOOTSTRAP",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT,…",
    help="Brokers that the Python names, where the spec names none.  [env: BARNABAS_BOOTSTRAP]",
)
@_url
def export(what: str, directory: Path | None, bootstrap: str, service: Service) -> None:
    """Print the spec in FILE, or the pipeline NAME of the service, as declarative Python for Spark.

    Refuses a spec with an option that has no declarative form, and names the option.
    """
    export_pipeline(what, directory, bootstrap, service)


@pipeline.command(name="list")
@json_option
@_url
def list_(as_json: bool, service: Service) -> None:
    """List the pipelines and their states."""
    found: dict[str, Any] = ask(service, "GET", "/connectors?expand=status")
    if as_json:
        print_json([each["status"] for each in found.values()])
        return
    rows = [_row(name, each["status"]["pipeline"]) for name, each in sorted(found.items())]
    print_table(("name", "state", "delivery", "records", "lag", "dead letters", "restarts"), rows)


@pipeline.command()
@_name
@json_option
@_url
def status(name: str, as_json: bool, service: Service) -> None:
    """Show the state of NAME."""
    found = ask(service, "GET", path_of(name, "status"))
    if as_json:
        print_json(found)
        return
    about = found["pipeline"]
    click.echo(f"{name} is {about['state']} ({about['delivery']})")
    if about["last_error"]:
        click.echo(f"last error: {about['last_error']}")
    if about["progress"]:
        from barnabas.pipelines.state.progress import Progress, progress_line, sink_line  # noqa: PLC0415

        progress = Progress.of_document(about["progress"])
        click.echo(progress_line(progress, about["records"]))
        line = sink_line(progress, about["lag"], SystemClock().now_ms())
        if line is not None:
            click.echo(line)


@pipeline.command()
@_name
@click.option("--reset", is_flag=True, help="Reset to the start position of the spec.")
@click.option("--set", "changes", multiple=True, metavar="TOPIC:PARTITION=OFFSET", help="Set this offset.")
@json_option
@_url
def offsets(name: str, reset: bool, changes: tuple[str, ...], as_json: bool, service: Service) -> None:
    """Show the offsets of NAME, or change them while it is stopped."""
    if reset:
        click.echo(ask(service, "DELETE", path_of(name, "offsets"))["message"])
        return
    if changes:
        body = {"offsets": [_offset(text) for text in changes]}
        click.echo(ask(service, "PATCH", path_of(name, "offsets"), body)["message"])
        return
    rows = ask(service, "GET", path_of(name, "offsets"))["offsets"]
    if as_json:
        print_json(rows)
        return
    table = [
        tuple(str(each) for each in (*row["partition"].values(), *row["offset"].values())) for row in rows
    ]
    width = max(map(len, table), default=3)
    print_table(("topic", "partition", "offset")[:width] if width <= 3 else ("offset",) * width, table)


def _row(name: str, about: dict[str, Any]) -> tuple[str, ...]:
    lag = about["lag"]
    return (
        name,
        about["state"],
        about["delivery"],
        str(about["records"]),
        "" if lag is None else str(lag),
        str(about["dead_letters"]),
        str(about["restarts"]),
    )


def _offset(text: str) -> dict[str, Any]:
    (topic, partition), offset = parse_partition_offset(text, "--set")
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": partition},
        "offset": {"kafka_offset": offset},
    }
