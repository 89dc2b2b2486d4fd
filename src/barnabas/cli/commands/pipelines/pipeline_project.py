"""Declarative projects (`spark-pipeline.yml`) in the commands that take the spec of a pipeline."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.commands.pipelines.pipeline_spec import InvalidSpecText, require_spark
from barnabas.cli.support.exit_codes import Failure, InvalidSettings, NotFound, Unreachable
from barnabas.cli.support.pipeline_client import Service, ask, path_of
from barnabas.cli.support.session import Bootstrap
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.pipelines.spec.declarative.requirements import connect_complaint
from barnabas.pipelines.spec.declarative.settings import declarative_config, declarative_spec

if TYPE_CHECKING:
    from barnabas.pipelines.spec.declarative.project import Project
    from barnabas.pipelines.state.progress import Progress


def load_project(file: Path) -> Project:
    """Project in a file, checked without Spark."""
    from barnabas.pipelines.spec.declarative.project import read_project  # noqa: PLC0415 - rarely needed
    from barnabas.pipelines.spec.problems import InvalidSpec  # noqa: PLC0415 - rarely needed
    from barnabas.pipelines.spec.yaml_source import UnreadableSpec  # noqa: PLC0415 - rarely needed

    try:
        project = read_project(file)
        declarative_spec(project.name, _config(project))
    except FileNotFoundError as error:
        raise NotFound(f"{file}: {error.strerror}") from None
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"{file} is not a project's file: it is not UTF-8 text") from None
    except (InvalidSpec, UnreadableSpec) as error:
        raise InvalidSpecText(str(error)) from None
    return project


def describe_project(project: Project) -> str:
    count = len(project.sources)
    return f"a declarative pipeline with {count} {'file' if count == 1 else 'files'}"


def start_project(file: Path, service: Service) -> str:
    """Send a project to the service and start it; returns the name."""
    project = load_project(file)
    ask(service, "PUT", path_of(project.name, "config"), _config(project))
    ask(service, "PUT", path_of(project.name, "resume"))
    return project.name


def _config(project: Project) -> dict[str, str]:
    return declarative_config(project.name, project.file.absolute(), project.settings)


def require_connect() -> None:
    """Refuse to go on without the packages of Spark Connect, by which Spark runs declarative pipelines."""
    require_spark()
    complaint = connect_complaint()
    if complaint is not None:
        raise InvalidSettings(complaint)


def run_project(file: Path, bootstrap: Bootstrap, *, quiet: bool) -> None:
    """Host a project here until a signal, or until an update fails."""
    project = load_project(file)
    require_connect()
    try:
        asyncio.run(_host(project, bootstrap, quiet=quiet))
    except ClusterUnreachable as error:
        raise Unreachable(str(error)) from None


async def _host(project: Project, bootstrap: Bootstrap, *, quiet: bool) -> None:
    from barnabas.client.aio.cluster_client import ClusterClient  # noqa: PLC0415 - rarely needed
    from barnabas.pipelines.service.declarative.log_ends import ClusterLogEnds  # noqa: PLC0415
    from barnabas.pipelines.service.declarative.trust import Trusted  # noqa: PLC0415
    from barnabas.pipelines.service.hosting.hosting import Hosting  # noqa: PLC0415
    from barnabas.pipelines.service.hosting.update_process import run_update  # noqa: PLC0415

    clock = SystemClock()
    cluster = ClusterClient(
        bootstrap.addresses,
        clock=clock,
        randomness=random.SystemRandom(),
        client_id="pipelines",
        security=bootstrap.security.secured(),
    )
    async with cluster:
        await cluster.refresh(())
        printed = _Printed(quiet=quiet)
        hosting = Hosting(run_update, ClusterLogEnds(cluster), clock, Trusted(is_anywhere=True))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, hosting.stop, project.name)
        hosting.start(declarative_spec(project.name, _config(project)), 0, 1, printed)
        await printed.ended.wait()
        await hosting.close()
    if printed.error is not None:
        raise Failure(printed.error)
    click.echo("stopped; the next run continues from here", err=True)


class _Printed:
    """Observer that prints a line for each update."""

    def __init__(self, *, quiet: bool) -> None:
        self.ended = asyncio.Event()
        self.error: str | None = None
        self._quiet = quiet
        self._total = 0

    def on_running(self, name: str, attempt: int) -> None:  # noqa: ARG002
        if not self._quiet:
            click.echo(f"{name}: Spark starts the first update", err=True)

    def on_progress(self, name: str, attempt: int, progress: Progress) -> None:  # noqa: ARG002
        from barnabas.pipelines.state.progress import progress_line  # noqa: PLC0415

        self._total += progress.records
        if not self._quiet:
            click.echo(progress_line(progress, self._total), err=True)

    def on_ended(
        self,
        name: str,  # noqa: ARG002
        attempt: int,  # noqa: ARG002
        error: str | None,
        *,
        is_final: bool = False,  # noqa: ARG002
        is_counted: bool = True,  # noqa: ARG002
    ) -> None:
        self.error = error
        self.ended.set()
