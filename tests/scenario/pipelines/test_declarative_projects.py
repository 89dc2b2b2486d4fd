"""Declarative projects and the commands on them, beside a service whose drivers only remember."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from barnabas.pipelines.service.declarative.trust import Trusted
from tests.scenario.pipelines.conftest import RunningService, running_service

SPEC = """\
name: copy
source: {type: topic, topics: orders, schema: id BIGINT}
sink: {type: topic, topic: out}
delivery: at-least-once
"""


@pytest.fixture
def trusting(pipelines_broker: str, tmp_path: Path) -> Iterator[RunningService]:
    """A service that runs the projects below one directory."""
    (tmp_path / "projects").mkdir()
    with running_service(
        pipelines_broker, tmp_path / "state", projects=Trusted((tmp_path / "projects",))
    ) as running:
        yield running


def project_in(directory: Path) -> Path:
    directory.mkdir(parents=True)
    file = directory / "spark-pipeline.yml"
    (directory / "orders.py").write_text("from pyspark import pipelines as dp\n")
    file.write_text(
        f"name: orders\nstorage: {(directory / 'state').as_uri()}\n"
        "libraries: [{glob: {include: orders.py}}]\n"
        'configuration: {spark.barnabas.restart.max_attempts: "3"}\n'
    )
    return file


def pipeline(service: RunningService, *words: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *words, "--url", service.url])


def said(service: RunningService, *words: str) -> str:
    done = pipeline(service, *words)
    assert done.exit_code == 0, done.output
    return done.output


def test_the_commands_on_pipelines_take_a_project(trusting: RunningService, tmp_path: Path) -> None:
    file = project_in(tmp_path / "projects" / "orders")
    validated = CliRunner().invoke(cli, ["pipeline", "validate", str(file)])
    assert validated.output == f"{file}: orders is valid: a declarative pipeline with 1 file\n"
    assert said(trusting, "start", str(file)) == (
        "started orders: Spark updates it when there are new records\n"
    )
    assert trusting.drivers.started == [("orders", 0, None)]
    assert "orders" in said(trusting, "list")
    config = httpx.get(f"{trusting.url}/connectors/orders/config").json()
    assert (config["project.file"], config["restart.max_attempts"]) == (str(file), "3")
    graph = httpx.get(f"{trusting.url}/connectors/orders/graph").json()
    assert [stage["type"] for stage in graph["stages"]] == ["project", "tables"]
    assert httpx.get(f"{trusting.url}/connectors/orders/topics").json() == {"orders": {"topics": []}}
    assert said(trusting, "offsets", "orders").splitlines()[1:] == []
    said(trusting, "pause", "orders")
    said(trusting, "resume", "orders")
    said(trusting, "stop", "orders")
    refused = pipeline(trusting, "offsets", "orders", "--reset")
    assert refused.exit_code == 1
    assert "--full-refresh-all" in refused.output
    said(trusting, "delete", "orders")
    assert file.is_file()


def test_a_client_chooses_no_code(trusting: RunningService, service: RunningService, tmp_path: Path) -> None:
    """A project elsewhere is not read, nor is any where the service trusts no directory."""
    elsewhere = project_in(tmp_path / "elsewhere")
    inside = project_in(tmp_path / "projects" / "orders")
    for running, file in ((trusting, elsewhere), (service, elsewhere), (service, inside)):
        config = {"connector.class": "DeclarativePipeline", "project.file": str(file)}
        answer = httpx.put(f"{running.url}/connectors/orders/config", json=config)
        assert answer.status_code == 400
        assert "is not in a directory that --projects of the service names" in answer.json()["message"]
        assert running.drivers.started == []


def test_a_project_of_another_name_or_with_problems_is_refused(
    trusting: RunningService, tmp_path: Path
) -> None:
    file = project_in(tmp_path / "projects" / "orders")
    config = {"connector.class": "DeclarativePipeline", "project.file": str(file)}
    answer = httpx.put(f"{trusting.url}/connectors/others/config", json=config)
    assert "has the name 'orders', not 'others'" in answer.json()["message"]
    file.write_text("name: orders\n")
    answer = httpx.put(f"{trusting.url}/connectors/orders/config", json=config)
    assert "storage: found nothing; expected a URI" in answer.json()["message"]
    file.unlink()
    assert pipeline(trusting, "start", str(file)).exit_code == 4


def test_the_plugin_of_projects_lists_its_settings(service: RunningService) -> None:
    rows = httpx.get(f"{service.url}/connector-plugins/DeclarativePipeline/config").json()
    assert [row["name"] for row in rows][:3] == ["project.file", "update.min.interval", "update.max.interval"]


def test_a_stored_pipeline_is_exported(service: RunningService, tmp_path: Path) -> None:
    spec = tmp_path / "copy.yaml"
    spec.write_text(SPEC)
    said(service, "start", str(spec))
    assert '@dp.append_flow(target="copy_topic", name="copy")' in said(service, "export", "copy")
    directory = tmp_path / "project"
    assert "wrote" in said(service, "export", "copy", "--directory", str(directory))
    validated = CliRunner().invoke(cli, ["pipeline", "validate", str(directory / "spark-pipeline.yml")])
    assert "copy is valid" in validated.output
    assert pipeline(service, "export", "copy", "--directory", str(directory)).exit_code == 5
    spec.write_text(SPEC.replace("at-least-once", "exactly-once"))
    refused = pipeline(service, "export", str(spec))
    assert refused.exit_code == 2
    assert "sink topic with delivery exactly-once" in refused.output
