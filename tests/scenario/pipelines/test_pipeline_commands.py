"""`barnabas pipeline` beside a service, as people use it: output, stored pipelines, deleted pipelines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
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
    assert said(service, "start", str(spec)) == "started copy: it continues from its checkpoint\n"
    (tmp_path / "copy" / "0" / "checkpoint").mkdir(parents=True)
    said(service, "delete", "copy")
    assert said(service, "start", str(spec)) == "started copy: it begins at the earliest offsets\n"
    generations = [generation for _, generation, _ in service.drivers.started]
    assert (generations[0], generations[-1]) == (0, 1)


def test_a_pipeline_is_reset_by_one_command(service: RunningService, tmp_path: Path) -> None:
    spec = tmp_path / "copy.yaml"
    spec.write_text(SPEC)
    said(service, "start", str(spec))
    assert said(service, "reset", "copy") == "reset copy: it starts again at the position of its spec\n"
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


def test_a_service_on_loopback_asks_for_the_token_that_it_prints(
    pipelines_broker: str, tmp_path: Path
) -> None:
    """Commands of the same user find it; every other client shows it in a header."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {**ENVIRONMENT, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    words = serving(pipelines_broker, port, tmp_path / "state")
    service = ServerProcess(words, is_ready=lambda line: "listen on" in line, environment=environment)
    try:
        assert service.wait_ready(PATIENCE_S).endswith(url)
        (token,) = re.findall(r"^token (\S+)$", service.output_text(), re.MULTILINE)
        for path in ("/", "/connectors", "/metrics"):
            assert httpx.get(url + path).status_code == 401
        spec = {"connector.class": "RateSource", "topic": "numbers"}
        assert httpx.put(f"{url}/connectors/p/config", json=spec).status_code == 401
        shown = httpx.get(f"{url}/connectors", headers={"Authorization": f"Bearer {token}"})
        assert shown.json() == []
        listing = ["pipeline", "list", "--url", url]
        assert CliRunner().invoke(cli, listing, env=environment).exit_code == 0
        stranger = CliRunner().invoke(cli, listing, env={"XDG_CACHE_HOME": str(tmp_path / "nowhere")})
        assert stranger.exit_code == 1
        assert "BARNABAS_PIPELINES_TOKEN" in stranger.output
        told = {"XDG_CACHE_HOME": str(tmp_path / "nowhere"), "BARNABAS_PIPELINES_TOKEN": token}
        assert CliRunner().invoke(cli, listing, env=told).exit_code == 0
    finally:
        assert service.stop() == 0, service.output_text()
    assert list((tmp_path / "cache").rglob("*.properties")) == []


def test_a_service_on_loopback_is_open_where_its_settings_say_so(
    pipelines_broker: str, tmp_path: Path
) -> None:
    port = free_port()
    settings = tmp_path / "service.properties"
    settings.write_text("http.open=true\n")
    words = [*serving(pipelines_broker, port, tmp_path / "state"), "--config", str(settings)]
    service = ServerProcess(words, is_ready=lambda line: "listen on" in line, environment=ENVIRONMENT)
    try:
        service.wait_ready(PATIENCE_S)
        assert "token" not in service.output_text()
        assert httpx.get(f"http://127.0.0.1:{port}/connectors").json() == []
    finally:
        assert service.stop() == 0, service.output_text()
