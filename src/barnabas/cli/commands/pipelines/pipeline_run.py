"""`barnabas pipeline run`: a pipeline in this process, until it ends or is interrupted."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.commands.pipelines.pipeline_project import run_project
from barnabas.cli.commands.pipelines.pipeline_spec import (
    check_master,
    describe,
    load_file,
    master_option,
    state_option,
)
from barnabas.cli.support.connection_hints import advice, login_is_missing
from barnabas.cli.support.exit_codes import INTERRUPTED, Failure, InvalidSettings, NotFound, Unreachable
from barnabas.cli.support.progress import Stages
from barnabas.cli.support.session import Bootstrap, bootstrap_option, given_file, given_properties
from barnabas.pipelines.spec.declarative.project import is_project

if TYPE_CHECKING:
    from barnabas.pipelines.spec.model import PipelineSpec
    from barnabas.pipelines.spec.yaml_source import Located
    from barnabas.pipelines.state.progress import Progress

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENDED = "stopped; the next run continues from here"
OPEN_WINDOWS = (
    "windows that were still open are not written: the checkpoint keeps them, and a later run writes them"
    " once newer rows close them (emit: updates writes every window at once)"
)
SIGNAL_GRACE_S = 0.5
"""Time after the end of Spark's JVM in which a signal to this process explains it."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@state_option
@master_option
@click.option(
    "--from-scratch", is_flag=True, help="Start at the position of the spec, not at the checkpoint."
)
@click.option("--from-group", is_flag=True, help="Without a checkpoint, start at the group's offsets.")
@click.option("--quiet", is_flag=True, help="Print no progress.")
@bootstrap_option
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    state: str,
    master: str | None,
    from_scratch: bool,
    from_group: bool,
    quiet: bool,
    bootstrap: Bootstrap,
) -> None:
    """Run the pipeline in FILE here, until it ends or is interrupted.

    Python modules in the directory of FILE can be imported. FILE may be the spark-pipeline.yml of a
    declarative project: Spark then updates it whenever there are new records.
    """
    if is_project(file):
        run_project(file, bootstrap, quiet=quiet)
        return
    _find_modules_in(file.parent)
    spec, located = load_file(file, runs_here=True)
    spec = _by_own_settings(spec, ctx)
    if master is not None:
        check_master(master)
    if from_group and from_scratch:
        raise click.BadParameter(
            "--from-group and --from-scratch exclude each other", param_hint="--from-group"
        )
    generation = _generation(state, spec.name, is_from_scratch=from_scratch)
    click.echo(f"{spec.name}: {describe(spec)}", err=True)
    stages = Stages(spec.name, quiet=quiet)
    ending = _Ending(stages)
    addresses = ",".join(map(str, bootstrap.addresses))
    with _errors_reported(spec, located), ending:
        from barnabas.pipelines.spark.context.connectivity_checks import (  # noqa: PLC0415 - optional dependencies
            asked_brokers,
            check_files,
            check_topics,
            needs_broker,
        )
        from barnabas.pipelines.spark.context.run_context import Beginning, Run  # noqa: PLC0415
        from barnabas.pipelines.spark.jvm.session import (  # noqa: PLC0415
            discard_stderr,
            open_session,
            session_defaults,
        )
        from barnabas.security.identity.secret_references import resolve  # noqa: PLC0415

        check_files(spec, session_defaults(resolve(master or spec.spark.master))["spark.master"])
        if needs_broker(spec):
            stages.enter(f"asking the broker at {asked_brokers(spec, addresses)}")
            check_topics(spec, addresses)
        stages.enter("starting Spark, which takes some seconds")
        session = open_session(resolve(master or spec.spark.master), resolve(spec.spark.conf), name=spec.name)
        ending.listen()  # Spark's own handler would break the connection to its JVM
        from barnabas.pipelines.spark.runner import run_pipeline  # noqa: PLC0415

        stages.enter("putting the pipeline together")
        show = _printer(stages, quiet=quiet)
        ending.is_starting = False
        beginning = Beginning.FROM_GROUP if from_group else Beginning.ONCE
        beginning = Beginning.AGAIN if from_scratch else beginning
        with ending.batch_may_fail():
            run_pipeline(
                Run(session, spec, addresses, state, generation, beginning=beginning),
                show,
                stopped=ending.stopped,
                on_running=lambda: stages.enter("waiting for the first micro-batch"),
                on_stopping=lambda: discard_stderr(session),
            )
            stages.leave()
            discard_stderr(session)
            session.stop()
    if not ending.stopped.is_set():
        if spec.keeps_open_windows:
            click.echo(f"{spec.name}: {OPEN_WINDOWS}", err=True)
        click.echo(f"{spec.name}: done", err=True)
        return
    click.echo(f"{spec.name}: {ENDED}", err=True)
    sys.exit(INTERRUPTED if ending.is_interrupted else 0)


def _by_own_settings(spec: PipelineSpec, ctx: click.Context) -> PipelineSpec:
    """Apply `--command-config` to the parts of a spec that use `--bootstrap` without security settings."""
    from barnabas.pipelines.spec.own_cluster import of_properties, with_client_settings  # noqa: PLC0415

    file = given_file(ctx)
    return spec if file is None else with_client_settings(spec, of_properties(given_properties(ctx), file))


def _descendants(process_id: int) -> Iterator[int]:
    """Descendants of a process, each before its own children. None without /proc."""
    for listed in Path("/proc").glob(f"{process_id}/task/*/children"):
        with suppress(OSError):
            for child in map(int, listed.read_text().split()):
                yield child
                yield from _descendants(child)


class _Ending:
    """Signal handler: SIGINT and SIGTERM stop the pipeline in order; a second signal stops it at once.

    Before the pipeline runs there is nothing to finish: the process exits at once and kills its JVM and the
    JVM's workers. On their own they would exit at the end of their input, each with a traceback. An exception
    through Spark's half-open connection would be logged by every layer that it passes.
    """

    def __init__(self, stages: Stages) -> None:
        self.stopped = threading.Event()
        self.is_interrupted = False
        self.is_starting = True
        self._stages = stages
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        for number in ENDING_SIGNALS:
            signal.signal(number, self.handle)

    def handle(self, number: int, _: object) -> None:
        if self.is_starting or self.stopped.is_set():
            self._leave(number)
        self.is_interrupted = number == signal.SIGINT
        self.stopped.set()
        self._stages.enter("stopping after the current micro-batch; a second signal stops at once")

    @contextmanager
    def batch_may_fail(self) -> Iterator[None]:
        """Ignore the failure of a micro-batch after a signal: the next run repeats the batch.

        A service manager signals every process of a service, Spark's JVM and workers too, one after the
        other. A failure that the next run would meet before any record is reported.
        """
        from barnabas.pipelines.spark.context.run_context import PipelineInvalid, TooManyErrors  # noqa: PLC0415

        try:
            yield
        except (PipelineInvalid, TooManyErrors):
            raise
        except Exception:
            if not self.stopped.wait(SIGNAL_GRACE_S):
                raise

    def _leave(self, number: int) -> None:
        self._stages.leave()
        for process_id in reversed(list(_descendants(os.getpid()))):
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
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
def _errors_reported(spec: PipelineSpec, located: Located) -> Iterator[None]:
    """Turn errors into one message, with the line of the spec where it is known."""
    from barnabas.pipelines.spark.context.connectivity_checks import BrokerMissing, FileMissing, TopicMissing  # noqa: PLC0415
    from barnabas.pipelines.spark.context.run_context import PipelineFailed, PipelineInvalid  # noqa: PLC0415
    from barnabas.pipelines.spark.jvm.session import SparkMissing  # noqa: PLC0415
    from barnabas.pipelines.spark.recovery.error_reasons import reason_of, scrub  # noqa: PLC0415

    try:
        yield
    except BrokerMissing as error:
        is_login_missing = error.was_connected and not error.protocol.is_sasl
        hint = login_is_missing(error.protocol) if is_login_missing else advice(str(error), error.protocol)
        raise Unreachable(f"{error}: {hint}") from None
    except PipelineFailed as error:
        text = scrub(str(error), spec)
        if error.path:
            line = located.line(error.path)
            text = f"{located.file}{'' if line is None else f':{line}'}: {text}"
        kinds = ((TopicMissing, NotFound), (FileMissing, NotFound), (PipelineInvalid, InvalidSettings))
        raise next((made for kind, made in kinds if isinstance(error, kind)), Failure)(text) from None
    except SparkMissing as error:
        raise Failure(str(error)) from None
    except Exception as error:  # noqa: BLE001 - Spark may raise any error; the user gets one sentence
        raise Failure(reason_of(error, spec)) from None


def _generation(state: str, name: str, *, is_from_scratch: bool) -> int:
    """Checkpoint generation to use: the last one, or a new one from scratch."""
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


def _find_modules_in(directory: Path) -> None:
    """Make modules in the directory importable, here and in Spark's workers."""
    path = str(directory.absolute())
    sys.path.insert(0, path)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH")]))


def _printer(stages: Stages, *, quiet: bool) -> Any:
    from barnabas.pipelines.state.progress import progress_line  # noqa: PLC0415

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
