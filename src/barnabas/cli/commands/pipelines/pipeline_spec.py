"""Spec files of pipelines: loading, validation and summary for commands."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.support.exit_codes import InvalidSettings, NotFound
from barnabas.core.optional_dependencies import install_command
from barnabas.pipelines.state.location import default_state

if TYPE_CHECKING:
    from barnabas.pipelines.spec.model import PipelineSpec
    from barnabas.pipelines.spec.yaml_source import Located

SPARK_PACKAGES = ("numpy", "pandas", "pyarrow", "pyspark")
"""Packages of the extra `spark` that a run imports."""

state_option = click.option(
    "--state",
    default=default_state,
    show_default="the user's state directory, or barnabas-pipelines where that is",
    metavar="DIR",
    help="Directory of the checkpoints, or a URL that all machines of Spark can reach.",
)
master_option = click.option(
    "--master", metavar="MASTER", help="local[*], local-cluster[…], spark://…, yarn, k8s://…"
)


def what_to_install() -> str:
    return f"pipelines need more than a broker: {install_command('spark')} (and Java 17 to run them)"


def load_file(file: Path, *, runs_here: bool = False) -> tuple[PipelineSpec, Located]:
    from barnabas.pipelines.spec.problems import InvalidSpec  # noqa: PLC0415 - rarely needed
    from barnabas.pipelines.spec.validation import load  # noqa: PLC0415 - rarely needed
    from barnabas.pipelines.spec.yaml_source import UnreadableSpec, read_yaml  # noqa: PLC0415

    try:
        located = read_yaml(file.read_text(encoding="utf-8"), str(file))
        spec = load(located)
        if runs_here:
            require_spark()
            from barnabas.pipelines.spark.checks.preflight import check_machine  # noqa: PLC0415 - only here

            check_machine(spec, located)
        return spec, located
    except FileNotFoundError as error:
        raise NotFound(f"{file}: {error.strerror}") from None
    except OSError as error:
        raise InvalidSettings(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"{file} is not a pipeline's file: it is not UTF-8 text") from None
    except (InvalidSpec, UnreadableSpec) as error:
        raise InvalidSpecText(str(error)) from None


def require_spark() -> None:
    """Refuse to go on without the packages of a run. Other extras install some of them."""
    if any(find_spec(each) is None for each in SPARK_PACKAGES):
        raise InvalidSettings(what_to_install())


class InvalidSpecText(InvalidSettings):
    """Keeps its lines, one for each problem."""

    def show(self, file: Any = None) -> None:
        click.echo(self.message, file=file, err=file is None)


def check_master(master: str) -> None:
    from barnabas.pipelines.spec.cross_checks import master_complaint  # noqa: PLC0415 - rarely needed

    complaint = master_complaint(master)
    if complaint:
        raise click.BadParameter(complaint, param_hint="--master")


def describe(spec: PipelineSpec) -> str:
    steps = [spec.source.type, *(part.type for part in spec.transforms), spec.sink.type]
    return f"{' -> '.join(steps)}, {spec.guarantee.value}"


def beginning(spec: PipelineSpec) -> str:
    """Start position of a pipeline without a checkpoint."""
    source = spec.source
    if source.type != "topic":
        return {"rate": "with 0", "files": "with all files", "jdbc": "with all rows"}[source.type]
    if source.get("starting_timestamp"):
        return f"at the time {source['starting_timestamp']}"
    where = source.get("starting_offsets", "earliest")
    return f"at the {where} offsets" if where in ("earliest", "latest") else f"at {where}"
