"""`barnabas pipeline export`: a YAML pipeline as a project of Spark's declarative pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.commands.pipelines.pipeline_spec import InvalidSpecText, load_file
from barnabas.cli.support.exit_codes import AlreadyExists, InvalidSettings
from barnabas.cli.support.pipeline_client import Service, ask, path_of
from barnabas.pipelines.spec.declarative.project import FILE_NAMES

if TYPE_CHECKING:
    from barnabas.pipelines.spec.declarative.export import Exported
    from barnabas.pipelines.spec.model import PipelineSpec


def export_pipeline(what: str, directory: Path | None, bootstrap: str, service: Service) -> None:
    """Print the Python of a pipeline, or write its project into a directory."""
    from barnabas.pipelines.spec.declarative.export import LIBRARY, CannotExport, export  # noqa: PLC0415

    spec = _spec(what, service)
    root = (directory or Path(spec.name)).absolute()
    try:
        exported = export(spec, bootstrap, (root / "pipeline-storage").as_uri())
    except CannotExport as error:
        lines = "".join(f"\n  {each}" for each in error.reasons)
        raise InvalidSpecText(f"{spec.name} has no declarative form:{lines}") from None
    if directory is None:
        click.echo(exported.python, nl=False)
        return
    _write(root, LIBRARY, spec.name, exported)
    click.echo(f"wrote {directory / FILE_NAMES[0]}; run it with 'barnabas pipeline start' or spark-pipelines")


def _spec(what: str, service: Service) -> PipelineSpec:
    from barnabas.pipelines.spec.connect.config import spec_of_config  # noqa: PLC0415
    from barnabas.pipelines.spec.problems import InvalidSpec  # noqa: PLC0415

    file = Path(what)
    if file.is_file():
        return load_file(file)[0]
    try:
        return spec_of_config(what, ask(service, "GET", path_of(what, "config")))
    except InvalidSpec as error:
        raise InvalidSettings(str(error)) from None


def _write(root: Path, library: str, name: str, exported: Exported) -> None:
    python = root / library / f"{name}.py"
    for file in (root / FILE_NAMES[0], python):
        if file.exists():
            raise AlreadyExists(f"{file} exists; choose another --directory")
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(exported.python, encoding="utf-8")
    (root / FILE_NAMES[0]).write_text(exported.project, encoding="utf-8")
