"""`barnabas pipeline` beside a service, as people use it: what is said, what is kept, what is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from tests.scenario.pipelines.conftest import RunningService
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.spark import REPOSITORY

SPEC = (
    "name: copy\nsource: {type: topic, topics: orders, schema: id BIGINT}\nsink: {type: topic, topic: out}\n"
)
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY / "src")}
PATIENCE_S = 120.0


def pipeline(service: RunningService, *words: str) -> Result:
    return CliRunner().invoke(cli, ["pipeline", *words, "--url", service.url])


def said(service: RunningService, *words: str) -> str:
    done = pipeline(service, *words)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_pipeline_that_is_deleted_is_gone_and_one_made_again_says_where_it_begins(
    service: RunningService, tmp_path: Path
) -> None:
    spec = tmp_path / "copy.yaml"
    spec.write_text(SPEC)
    assert said(service, "start", str(spec)) == "started copy: it begins at the earliest offsets\n"
    assert said(service, "start", str(spec)) == "started copy: it goes on where it was\n"
    (tmp_path / "copy" / "0" / "checkpoint").mkdir(parents=True)
    said(service, "delete", "copy")
    assert said(service, "start", str(spec)) == "started copy: it begins at the earliest offsets\n"
    generations = [generation for _, generation, _ in service.drivers.started]
    assert (generations[0], generations[-1]) == (0, 1)


def test_a_pipeline_is_reset_by_one_command(service: RunningService, tmp_path: Path) -> None:
    spec = tmp_path / "copy.yaml"
    spec.write_text(SPEC)
    said(service, "start", str(spec))
    assert said(service, "reset", "copy") == "reset copy: it begins again where its spec says\n"
    assert service.drivers.started[-1] == ("copy", 1, None)
    said(service, "pause", "copy")
    assert "it is stopped" in said(service, "reset", "copy")
    assert pipeline(service, "reset", "nobody").exit_code == 4


def serving(bootstrap: str, port: int, state: Path) -> list[str]:
    return [sys.executable, "-m", "barnabas", "--bootstrap", bootstrap, "pipeline", "serve",
            "--listen", f"127.0.0.1:{port}", "--state", str(state)]  # fmt: skip


def test_a_service_that_cannot_have_the_address_leaves_the_leader_alone(
    pipelines_broker: str, tmp_path: Path
) -> None:
    port = free_port()
    words = serving(pipelines_broker, port, tmp_path)
    first = ServerProcess(words, is_ready=lambda line: "listen on" in line, environment=ENVIRONMENT)
    try:
        first.wait_ready(PATIENCE_S)
        second = subprocess.run(
            words, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False
        )
        assert second.returncode == 1, second.stderr
        assert second.stderr.startswith(
            f"barnabas: cannot listen on 127.0.0.1:{port}: Address already in use"
        )
        assert "Traceback" not in second.stderr
        url = ["--url", f"http://127.0.0.1:{port}"]
        spec = tmp_path / "copy.yaml"
        spec.write_text(SPEC)
        started = CliRunner().invoke(cli, ["pipeline", "delete", "nobody", *url])
        # Still the leader: it looks for the pipeline, rather than send us elsewhere.
        assert "Connector nobody not found" in started.output
    finally:
        assert first.stop() == 0, first.output_text()
