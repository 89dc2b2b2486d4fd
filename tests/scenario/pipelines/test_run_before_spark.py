"""Errors of `barnabas pipeline run` that need no Spark come at once, in a line, with an exit code."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.pipelines.spark.jvm import session
from barnabas.pipelines.spark.jvm.session import SparkMissing
from tests.support.ports import free_port

pytest.importorskip("yaml", reason="PyYAML is not installed")

SPEC = """\
name: copy
source:
  type: topic
  topics: [ordres]
  schema: id BIGINT
sink: {type: console}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    file = tmp_path / "copy.yaml"
    file.write_text(SPEC)
    return file


def run(spec: Path, bootstrap: str) -> Result:
    ended = CliRunner().invoke(
        cli, ["--bootstrap", bootstrap, "pipeline", "run", str(spec), "--state", str(spec.parent / "state")]
    )
    assert "starting Spark" not in ended.output
    return ended


def test_a_broker_that_is_not_there(spec: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    ended = run(spec, place)
    assert ended.exit_code == 3, ended.output
    *_, asked, told = ended.output.splitlines()
    assert asked == f"copy: asking the broker at {place} …"
    assert told.startswith(f"barnabas: cannot reach {place} (connection refused): is a broker running?")


def test_a_source_with_a_broker_of_its_own_that_is_not_there(spec: Path, pipelines_broker: str) -> None:
    place = f"127.0.0.1:{free_port()}"
    spec.write_text(SPEC.replace("  schema", f"  bootstrap.servers: {place}\n  schema"))
    ended = run(spec, pipelines_broker)
    assert (ended.exit_code, place in ended.output) == (3, True), ended.output
    assert f"asking the broker at {place}" in ended.output, "and not at the address of the command alone"
    # Before Spark starts, the check needs no TLS, but a listener must accept.
    spec.write_text(
        SPEC.replace("  schema", f"  bootstrap: {place}\n  kafka: {{security.protocol: SSL}}\n  schema")
    )
    assert run(spec, pipelines_broker).exit_code == 3


def test_a_topic_that_is_not_there(spec: Path, pipelines_broker: str) -> None:
    async def make() -> None:
        async with ClusterClient(
            [Endpoint.parse(pipelines_broker)], clock=SystemClock(), randomness=random.Random(1)
        ) as cluster:
            await TopicAdmin(cluster).create_topic("orders", partitions=1, configs={})

    asyncio.run(make())
    ended = run(spec, pipelines_broker)
    assert ended.exit_code == 4, ended.output
    assert ended.output.splitlines()[-1] == (
        f"barnabas: {spec}:2: source.topics: there is no topic 'ordres'; did you mean 'orders'?"
        " (create it with 'barnabas topic create ordres')"
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for command in ("run", "validate"):
        ended = CliRunner().invoke(cli, ["pipeline", command, str(tmp_path / "none.yaml")])
        assert (ended.exit_code, "No such file" in ended.output) == (4, True), ended.output


def test_a_source_whose_file_is_not_there(spec: Path) -> None:
    missing = spec.parent / "orders"
    spec.write_text(
        f"name: copy\nsource:\n  type: files\n  path: {missing}\n  format: text\nsink: {{type: console}}\n"
    )
    ended = run(spec, f"127.0.0.1:{free_port()}")
    assert ended.exit_code == 4, ended.output
    assert ended.output.splitlines()[-1] == (
        f"barnabas: {spec}:2: source.path: there is no file or directory '{missing}'"
    )


def test_no_broker_is_asked_where_none_is_needed(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(*_: object, **__: object) -> None:
        raise SparkMissing("no Spark today")

    monkeypatch.setattr(session, "open_session", no_spark)
    spec.write_text("name: copy\nsource: {type: rate}\nsink: {type: console}\n")
    ended = CliRunner().invoke(cli, ["pipeline", "run", str(spec), "--state", str(spec.parent / "state")])
    assert "starting Spark" in ended.output
    assert "asking the broker" not in ended.output
