"""`barnabas pipeline`: judge specs, run one here, or steer those of the service."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.exits import INTERRUPTED, Failure, InvalidSettings, NotFound, Unreachable
from barnabas.cli.output import print_json, print_table
from barnabas.cli.pipeline_client import ask, path_of
from barnabas.cli.session import bootstrap_option
from barnabas.cli.stages import Stages
from barnabas.client.cluster_client import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.extras import install_command
from barnabas.node.log_output import configure_logging

if TYPE_CHECKING:
    from barnabas.pipelines.progress import Progress
    from barnabas.pipelines.spec.model import PipelineSpec
    from barnabas.pipelines.spec.yaml_source import Located

DEFAULT_URL = "http://127.0.0.1:8083"

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENDED = "stopped; it goes on from here when it is run again"
STOP_PATIENCE_MS = 60_000
STOP_POLL_S = 0.2

_url = click.option(
    "--url",
    envvar="BARNABAS_PIPELINES",
    default=DEFAULT_URL,
    show_default=True,
    metavar="URL",
    help="Where the pipeline service is.  [env: BARNABAS_PIPELINES]",
)
_name = click.argument("name")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_state = click.option(
    "--state",
    default="barnabas-pipelines",
    show_default=True,
    metavar="DIR",
    help="Where checkpoints are kept: a directory, or a URL that every machine of Spark sees.",
)
_master = click.option(
    "--master", metavar="MASTER", help="local[*], local-cluster[…], spark://…, yarn, k8s://…"
)


def _what_to_install() -> str:
    return f"pipelines need more than a broker: {install_command('spark')} (and Java 17 to run them)"


@click.group()
def pipeline() -> None:
    """Run data pipelines on Spark, and steer them.

    `validate` and `run` work on a spec here; the others ask the service that `serve` starts.
    """


@pipeline.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(files: tuple[Path, ...]) -> None:
    """Say what is wrong with specs, before any Spark starts."""
    failed = 0
    for file in files:
        try:
            spec = _load(file)
        except (InvalidSettings, NotFound) as error:
            failed = failed or error.exit_code
            click.echo(error.message, err=True)
        else:
            click.echo(f"{file}: {spec.name} is valid: {describe(spec)}")
    sys.exit(failed)


@pipeline.command()
@click.argument("file", type=click.Path(path_type=Path))
@_state
@_master
@click.option("--from-scratch", is_flag=True, help="Begin where the spec says, not where it was.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@bootstrap_option
def run(
    file: Path,
    state: str,
    master: str | None,
    from_scratch: bool,
    quiet: bool,
    bootstrap: tuple[Endpoint, ...],
) -> None:
    """Run the pipeline in FILE here, until it ends or is interrupted.

    Python modules beside FILE are found.
    """
    _find_modules_in(file.parent)
    spec, located = _loaded(file, runs_here=True)
    if master is not None:
        _check_master(master)
    generation = _generation(state, spec.name, is_from_scratch=from_scratch)
    click.echo(f"{spec.name}: {describe(spec)}", err=True)
    stages = Stages(spec.name, quiet=quiet)
    ending = _Ending(stages)
    addresses = ",".join(map(str, bootstrap))
    with _told(spec, located), ending:
        from barnabas.pipelines.spark.reach import (  # noqa: PLC0415 - a plain install stops before
            check_files,
            check_topics,
            needs_broker,
        )
        from barnabas.pipelines.spark.run import Run  # noqa: PLC0415
        from barnabas.pipelines.spark.session import open_session, session_defaults  # noqa: PLC0415
        from barnabas.pipelines.spec.secrets import resolve  # noqa: PLC0415

        check_files(spec, session_defaults(resolve(master or spec.spark.master))["spark.master"])
        if needs_broker(spec):
            stages.enter(f"asking the broker at {addresses}")
            check_topics(spec, addresses)
        stages.enter("starting Spark, which takes some seconds")
        session = open_session(resolve(master or spec.spark.master), resolve(spec.spark.conf), name=spec.name)
        ending.listen()  # Spark's own handler would tear the link to its JVM
        from barnabas.pipelines.spark.runner import run_pipeline  # noqa: PLC0415

        stages.enter("putting the pipeline together")
        show = _printer(stages, quiet=quiet)
        ending.is_starting = False
        run_pipeline(
            Run(session, spec, addresses, state, generation),
            show,
            stopped=ending.stopped,
            on_running=lambda: stages.enter("waiting for the first micro-batch"),
        )
        stages.leave()
        session.stop()
    if not ending.stopped.is_set():
        click.echo(f"{spec.name}: done", err=True)
        return
    click.echo(f"{spec.name}: {ENDED}", err=True)
    sys.exit(INTERRUPTED if ending.is_interrupted else 0)


@pipeline.command()
@click.option("--listen", default="127.0.0.1:8083", show_default=True, metavar="HOST:PORT")
@_state
@_master
@bootstrap_option
def serve(listen: str, state: str, master: str | None, bootstrap: tuple[Endpoint, ...]) -> None:
    """Keep pipelines running, and serve Kafka Connect's REST interface."""
    try:
        from barnabas.pipelines.service.server import AddressTaken  # noqa: PLC0415 - needs more than a broker
        from barnabas.pipelines.service.server import serve as serve_forever  # noqa: PLC0415
    except ImportError:
        raise InvalidSettings(_what_to_install()) from None
    host, _, port_text = listen.rpartition(":")
    if not host or not port_text.isdecimal():
        raise click.BadParameter(f"{listen!r} is not of the form HOST:PORT", param_hint="--listen")
    if master is not None:
        _check_master(master)
    place = str(Path(state).absolute()) if "://" not in state else state
    configure_logging("info")

    def ready(port: int) -> None:
        click.echo(f"barnabas pipelines listen on http://{host}:{port}")

    try:
        asyncio.run(
            serve_forever(bootstrap, place, host=host, port=int(port_text), master=master, ready=ready)
        )
    except AddressTaken as error:
        raise Failure(str(error)) from None
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: is a broker running? start one with 'barnabas start'") from None


@pipeline.command()
@click.argument("what", metavar="FILE|NAME")
@_url
def start(what: str, url: str) -> None:
    """Hand the spec in FILE to the service and start it, or start NAME, which the service knows."""
    file = Path(what)
    if not file.is_file():
        ask(url, "PUT", path_of(what, "resume"))
        click.echo(f"started {what}")
        return
    spec = _load(file)
    config = {
        "connector.class": "Pipeline",
        "name": spec.name,
        "pipeline.spec": file.read_text(encoding="utf-8"),
    }
    is_new = spec.name not in ask(url, "GET", "/connectors")
    ask(url, "PUT", path_of(spec.name, "config"), config)
    ask(url, "PUT", path_of(spec.name, "resume"))
    click.echo(f"started {spec.name}: it {f'begins {beginning(spec)}' if is_new else 'goes on where it was'}")


def _steering(verb: str, done: str, help_text: str, *, method: str = "PUT", query: str = "") -> None:
    """A command that only passes its name on to the service."""

    @pipeline.command(name=verb, help=help_text)
    @_name
    @_url
    def steer(name: str, url: str) -> None:
        ask(url, method, path_of(name, verb) + query)
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
def delete(name: str, url: str) -> None:
    """Forget NAME; what it wrote stays."""
    ask(url, "DELETE", path_of(name))
    click.echo(f"deleted {name}")


@pipeline.command()
@_name
@_url
def reset(name: str, url: str) -> None:
    """Let NAME begin again where its spec says; what it wrote stays."""
    before = ask(url, "GET", path_of(name, "status"))["pipeline"]["state"]
    ask(url, "PUT", path_of(name, "stop"))
    end = SystemClock().now_ms() + STOP_PATIENCE_MS
    while ask(url, "GET", path_of(name, "status"))["pipeline"]["state"] != "STOPPED":
        if SystemClock().now_ms() > end:
            raise Failure(f"{name} does not stop; its offsets are as they were: try again")
        time.sleep(STOP_POLL_S)
    ask(url, "DELETE", path_of(name, "offsets"))
    if before in ("STOPPED", "PAUSED"):
        click.echo(f"reset {name}: it is stopped, and begins where its spec says")
        return
    ask(url, "PUT", path_of(name, "resume"))
    click.echo(f"reset {name}: it begins again where its spec says")


@pipeline.command(name="list")
@_json
@_url
def list_(as_json: bool, url: str) -> None:
    """List the pipelines and how they are."""
    found: dict[str, Any] = ask(url, "GET", "/connectors?expand=status")
    if as_json:
        print_json([each["status"] for each in found.values()])
        return
    rows = [_row(name, each["status"]["pipeline"]) for name, each in sorted(found.items())]
    print_table(("name", "state", "delivery", "records", "lag", "dead letters", "restarts"), rows)


@pipeline.command()
@_name
@_json
@_url
def status(name: str, as_json: bool, url: str) -> None:
    """Say how NAME is."""
    found = ask(url, "GET", path_of(name, "status"))
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
@_json
@_url
def offsets(name: str, reset: bool, changes: tuple[str, ...], as_json: bool, url: str) -> None:
    """Show how far NAME has read, or, when it is stopped, change that."""
    if reset:
        click.echo(ask(url, "DELETE", path_of(name, "offsets"))["message"])
        return
    if changes:
        body = {"offsets": [_offset(text) for text in changes]}
        click.echo(ask(url, "PATCH", path_of(name, "offsets"), body)["message"])
        return
    rows = ask(url, "GET", path_of(name, "offsets"))["offsets"]
    if as_json:
        print_json(rows)
        return
    table = [
        tuple(str(each) for each in (*row["partition"].values(), *row["offset"].values())) for row in rows
    ]
    width = max(map(len, table), default=3)
    print_table(("topic", "partition", "offset")[:width] if width <= 3 else ("offset",) * width, table)


class _Ending:
    """SIGINT and SIGTERM ask for an orderly end; whoever asks twice gets one at once.

    Until the pipeline runs there is nothing to bring in order: the process leaves there and then, and
    its JVM with it, which goes when its standard input ends. An exception through Spark's half-open
    link would only be told by everyone it passes.
    """

    def __init__(self, stages: Stages) -> None:
        self.stopped = threading.Event()
        self.is_interrupted = False
        self.is_starting = True
        self._stages = stages
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        for number in ENDING_SIGNALS:
            signal.signal(number, self.hear)

    def hear(self, number: int, _: object) -> None:
        if self.is_starting or self.stopped.is_set():
            self._leave(number)
        self.is_interrupted = number == signal.SIGINT
        self.stopped.set()
        self._stages.enter("stopping after the micro-batch that is under way; once more stops at once")

    def _leave(self, number: int) -> None:
        self._stages.leave()
        os.write(2, f"barnabas: {'interrupted' if number == signal.SIGINT else 'stopped'}\n".encode())
        os._exit(INTERRUPTED if number == signal.SIGINT else 0)

    def __enter__(self) -> None:
        self._before = {number: signal.getsignal(number) for number in ENDING_SIGNALS}
        self.listen()

    def __exit__(self, *_: object) -> None:
        self._stages.leave()
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def _told(spec: PipelineSpec, located: Located) -> Iterator[None]:
    """Whatever goes wrong becomes one line, with its place in the file where that is known."""
    from barnabas.pipelines.spark.reach import BrokerMissing, FileMissing, TopicMissing  # noqa: PLC0415
    from barnabas.pipelines.spark.reasons import reason_of, scrub  # noqa: PLC0415
    from barnabas.pipelines.spark.run import PipelineFailed, PipelineInvalid  # noqa: PLC0415
    from barnabas.pipelines.spark.session import SparkMissing  # noqa: PLC0415

    try:
        yield
    except BrokerMissing as error:
        raise Unreachable(f"{error}: is a broker running? start one with 'barnabas start'") from None
    except PipelineFailed as error:
        text = scrub(str(error), spec)
        if error.path:
            line = located.line(error.path)
            text = f"{located.file}{'' if line is None else f':{line}'}: {text}"
        kinds = ((TopicMissing, NotFound), (FileMissing, NotFound), (PipelineInvalid, InvalidSettings))
        raise next((made for kind, made in kinds if isinstance(error, kind)), Failure)(text) from None
    except SparkMissing as error:
        raise Failure(str(error)) from None
    except Exception as error:  # noqa: BLE001 - whatever Spark says, a person gets its one sentence
        raise Failure(reason_of(error, spec)) from None


def describe(spec: PipelineSpec) -> str:
    steps = [spec.source.type, *(part.type for part in spec.transforms), spec.sink.type]
    return f"{' -> '.join(steps)}, {spec.guarantee.value}"


def beginning(spec: PipelineSpec) -> str:
    """Where a pipeline begins that has no checkpoint."""
    source = spec.source
    if source.type != "topic":
        return {"rate": "with 0", "files": "with all files", "jdbc": "with all rows"}[source.type]
    if source.get("starting_timestamp"):
        return f"at the time {source['starting_timestamp']}"
    where = source.get("starting_offsets", "earliest")
    return f"at the {where} offsets" if where in ("earliest", "latest") else f"at {where}"


def _generation(state: str, name: str, *, is_from_scratch: bool) -> int:
    """The last that was begun here, or the one after it."""
    from barnabas.pipelines.service.checkpoints import last_generation  # noqa: PLC0415 - rarely needed

    if "://" in state:
        if is_from_scratch:
            raise click.BadParameter(
                f"the checkpoints in {state} are not on this machine; choose another --state",
                param_hint="--from-scratch",
            )
        return 0
    last = last_generation(state, name)
    return last + 1 if is_from_scratch else max(last, 0)


def _load(file: Path) -> PipelineSpec:
    return _loaded(file)[0]


def _loaded(file: Path, *, runs_here: bool = False) -> tuple[PipelineSpec, Located]:
    try:
        from barnabas.pipelines.spec.validation import InvalidSpec, load  # noqa: PLC0415 - rarely needed
        from barnabas.pipelines.spec.yaml_source import UnreadableSpec, read_yaml  # noqa: PLC0415
    except ImportError:
        raise InvalidSettings(_what_to_install()) from None
    try:
        located = read_yaml(file.read_text(encoding="utf-8"), str(file))
        spec = load(located)
        if runs_here:
            from barnabas.pipelines.spark.preflight import check_machine  # noqa: PLC0415 - only here

            check_machine(spec, located)
        return spec, located
    except FileNotFoundError as error:
        raise NotFound(f"{file}: {error.strerror}") from None
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from None
    except (InvalidSpec, UnreadableSpec) as error:
        raise _InvalidSpec(str(error)) from None


def _find_modules_in(directory: Path) -> None:
    """Here, and in the workers that Spark starts here."""
    place = str(directory.absolute())
    sys.path.insert(0, place)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))


def _check_master(master: str) -> None:
    from barnabas.pipelines.spec.validation import master_complaint  # noqa: PLC0415 - rarely needed

    complaint = master_complaint(master)
    if complaint:
        raise click.BadParameter(complaint, param_hint="--master")


class _InvalidSpec(InvalidSettings):
    """Keeps its lines: there is one for each problem."""

    def show(self, file: Any = None) -> None:
        click.echo(self.message, file=file, err=file is None)


def _printer(stages: Stages, *, quiet: bool) -> Any:
    from barnabas.pipelines.progress import progress_line  # noqa: PLC0415

    total = 0

    def show(progress: Progress) -> None:
        nonlocal total
        stages.leave()
        total += progress.records
        if quiet:
            return
        line = progress_line(progress, total)
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{line}", err=True, nl=False)
        elif progress.records:
            click.echo(line, err=True)

    return show


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
