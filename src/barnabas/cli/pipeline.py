"""`barnabas pipeline`: judge specs, run one here, or steer those of the service."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from barnabas.cli.exits import Failure, InvalidSettings, NotFound, Unreachable
from barnabas.cli.output import json_option, print_json, print_table
from barnabas.cli.pipeline_client import Service, ask, path_of
from barnabas.cli.pipeline_run import run
from barnabas.cli.pipeline_spec import (
    beginning,
    check_master,
    describe,
    load_file,
    master_option,
    state_option,
    what_to_install,
)
from barnabas.cli.session import (
    Bootstrap,
    bootstrap_option,
    given_properties,
    properties_of,
    properties_option,
)
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig
from barnabas.node.log_output import configure_logging

DEFAULT_URL = "http://127.0.0.1:8083"

STOP_PATIENCE_MS = 60_000
STOP_POLL_S = 0.2


def _url(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--url` and `--command-config`, which become `service`."""
    with_url = click.option(
        "--url",
        "service",
        envvar="BARNABAS_PIPELINES",
        default=DEFAULT_URL,
        show_default=True,
        metavar="URL",
        callback=_service,
        help="Where the pipeline service is.  [env: BARNABAS_PIPELINES]",
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
    """Run data pipelines on Spark, and steer them.

    `validate` and `run` work on a spec here; the others ask the service that `serve` starts.
    """


pipeline.add_command(run)


@pipeline.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Say what is wrong with specs, before any Spark starts."""
    failed = 0
    for file in files:
        try:
            spec = load_file(file)[0]
        except (InvalidSettings, NotFound) as error:
            failed = failed or error.exit_code
            click.echo(error.message, err=True)
        else:
            click.echo(f"{file}: {spec.name} is valid: {describe(spec)}")
    sys.exit(failed)


@pipeline.command()
@click.option("--listen", default="127.0.0.1:8083", show_default=True, metavar="HOST:PORT")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Properties that protect the interface: http.users.file, listener.name.rest.ssl.*.",
)
@state_option
@master_option
@bootstrap_option
def serve(
    listen: str, config_file: Path | None, state: str, master: str | None, bootstrap: Bootstrap
) -> None:
    """Keep pipelines running, and serve Kafka Connect's REST interface.

    Where other machines reach it, it needs TLS and authentication (docs/SECURITY.md).
    """
    try:
        from barnabas.pipelines.service.server import (  # noqa: PLC0415 - needs more than a broker
            AddressTaken,
            OwnCluster,
        )
        from barnabas.pipelines.service.server import serve as serve_forever  # noqa: PLC0415
    except ImportError:
        raise InvalidSettings(what_to_install()) from None
    host, _, port_text = listen.rpartition(":")
    if not host or not port_text.isdecimal():
        raise click.BadParameter(f"{listen!r} is not of the form HOST:PORT", param_hint="--listen")
    if master is not None:
        check_master(master)
    place = str(Path(state).absolute()) if "://" not in state else state
    configure_logging("info")

    try:
        asyncio.run(
            serve_forever(
                OwnCluster(bootstrap.addresses, bootstrap.security),
                place,
                endpoint=Endpoint(host.removeprefix("[").removesuffix("]"), int(port_text)),
                properties=properties_of(config_file) if config_file is not None else {},
                master=master,
                ready=lambda url: click.echo(f"barnabas pipelines listen on {url}"),
            )
        )
    except AddressTaken as error:
        raise Failure(str(error)) from None
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: is a broker running? start one with 'barnabas start'") from None


@pipeline.command()
@click.argument("what", metavar="FILE|NAME")
@_url
def start(what: str, service: Service) -> None:
    """Hand the spec in FILE to the service and start it, or start NAME, which the service knows."""
    file = Path(what)
    if not file.is_file():
        ask(service, "PUT", path_of(what, "resume"))
        click.echo(f"started {what}")
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
    click.echo(f"started {spec.name}: it {f'begins {beginning(spec)}' if is_new else 'goes on where it was'}")


def _steering(verb: str, done: str, help_text: str, *, method: str = "PUT", query: str = "") -> None:
    """A command that only passes its name on to the service."""

    @pipeline.command(name=verb, help=help_text)
    @_name
    @_url
    def steer(name: str, service: Service) -> None:
        ask(service, method, path_of(name, verb) + query)
        click.echo(f"{done} {name}")


_steering("stop", "stopped", "Stop NAME; its offsets can then be changed.")
_steering("pause", "paused", "Pause NAME: its query ends, its checkpoint stays.")
_steering("resume", "resumed", "Let NAME go on where it was.")
_steering(
    "restart",
    "restarted",
    "Start NAME again, whatever became of it.",
    method="POST",
    query="?includeTasks=true",
)


@pipeline.command()
@_name
@_url
def delete(name: str, service: Service) -> None:
    """Forget NAME; what it wrote stays."""
    ask(service, "DELETE", path_of(name))
    click.echo(f"deleted {name}")


@pipeline.command()
@_name
@_url
def reset(name: str, service: Service) -> None:
    """Let NAME begin again where its spec says; what it wrote stays."""
    before = ask(service, "GET", path_of(name, "status"))["pipeline"]["state"]
    ask(service, "PUT", path_of(name, "stop"))
    end = SystemClock().now_ms() + STOP_PATIENCE_MS
    while ask(service, "GET", path_of(name, "status"))["pipeline"]["state"] != "STOPPED":
        if SystemClock().now_ms() > end:
            raise Failure(f"{name} does not stop; its offsets are as they were: try again")
        time.sleep(STOP_POLL_S)
    ask(service, "DELETE", path_of(name, "offsets"))
    if before in ("STOPPED", "PAUSED"):
        click.echo(f"reset {name}: it is stopped, and begins where its spec says")
        return
    ask(service, "PUT", path_of(name, "resume"))
    click.echo(f"reset {name}: it begins again where its spec says")


@pipeline.command(name="list")
@json_option
@_url
def list_(as_json: bool, service: Service) -> None:
    """List the pipelines and how they are."""
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
    """Say how NAME is."""
    found = ask(service, "GET", path_of(name, "status"))
    if as_json:
        print_json(found)
        return
    about = found["pipeline"]
    click.echo(f"{name} is {about['state']} ({about['delivery']})")
    if about["last_error"]:
        click.echo(f"last error: {about['last_error']}")
    if about["progress"]:
        from barnabas.pipelines.progress import Progress, progress_line  # noqa: PLC0415

        click.echo(progress_line(Progress.of_document(about["progress"]), about["records"]))


@pipeline.command()
@_name
@click.option("--reset", is_flag=True, help="Begin again where the spec says.")
@click.option("--set", "changes", multiple=True, metavar="TOPIC:PARTITION=OFFSET", help="Begin again there.")
@json_option
@_url
def offsets(name: str, reset: bool, changes: tuple[str, ...], as_json: bool, service: Service) -> None:
    """Show how far NAME has read, or, when it is stopped, change that."""
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
    progress = about["progress"] or {}
    lag = progress.get("lag")
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
    place, equals, offset = text.partition("=")
    topic, colon, partition = place.rpartition(":")
    if not (equals and colon and partition.isdecimal() and offset.isdecimal()):
        raise click.BadParameter(f"{text!r} is not of the form TOPIC:PARTITION=OFFSET", param_hint="--set")
    return {
        "partition": {"kafka_topic": topic, "kafka_partition": int(partition)},
        "offset": {"kafka_offset": int(offset)},
    }
