"""Connectivity checks before Spark starts, on a secured cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType

from barnabas.cli.main import cli
from barnabas.pipelines.spark.context.connectivity_checks import BrokerMissing, TopicMissing, check_topics
from barnabas.pipelines.spark.context.run_context import Unavailable
from barnabas.pipelines.spark.context.topics import ensure_topics
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document
from tests.support.process import ServerProcess
from tests.support.secured_broker import USERS, SecuredBroker, secured_broker
from tests.support.spark import REPOSITORY

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        running.allow("alice", ResourceType.TOPIC, "a-", AclOperation.ALL)
        yield running


@pytest.fixture(autouse=True)
def passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALICE", "alices-own-secret")
    monkeypatch.setenv("WRONG", "not-hers")


def reading(broker: SecuredBroker, topic: str, password: str = "${env:ALICE}") -> PipelineSpec:
    settings = broker.settings("alice", password)
    source = {"type": "topic", "topics": [topic], "schema": "id BIGINT", "kafka": settings}
    return load_document({"name": "p", "source": source, "sink": {"type": "console"}})


def test_topics_are_made_and_found_by_the_pipelines_own_credentials(broker: SecuredBroker) -> None:
    with pytest.raises(TopicMissing, match="there is no topic 'a-orders'"):
        check_topics(reading(broker, "a-orders"), broker.bootstrap)
    settings = broker.settings("alice", "${env:ALICE}")
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    options |= {f"kafka.{name}": text for name, text in settings.items()}
    ensure_topics(options, ["a-orders"])
    assert "a-orders" in AdminClient(broker.confluent()).list_topics(timeout=60).topics
    check_topics(reading(broker, "a-orders"), broker.bootstrap)
    with pytest.raises(Unavailable, match="a topic cannot be created"):
        ensure_topics(options, ["not-hers"])


def test_a_wrong_password_is_reported_and_not_shown(broker: SecuredBroker) -> None:
    with pytest.raises(Unavailable, match=r"cannot list its topics: .*Invalid username") as refused:
        check_topics(reading(broker, "a-orders", "${env:WRONG}"), broker.bootstrap)
    assert not isinstance(refused.value, BrokerMissing), "a broker is running"
    assert "not-hers" not in str(refused.value)


def test_run_takes_the_settings_of_a_file(broker: SecuredBroker, tmp_path: Path) -> None:
    properties = tmp_path / "alice.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in broker.settings("alice").items()))
    spec = tmp_path / "p.yaml"
    spec.write_text(
        "name: p\nsource: {type: topic, topics: [a-nothing], schema: id BIGINT}\nsink: {type: console}\n"
    )
    words = ["pipeline", "run", str(spec), "--bootstrap", broker.bootstrap, "--state", str(tmp_path / "s")]
    done = CliRunner().invoke(cli, [*words, "--command-config", str(properties)])
    assert "there is no topic 'a-nothing'" in done.output
    assert done.exit_code == 4


def test_the_service_reaches_its_own_topic_by_the_settings_of_a_file(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    properties = tmp_path / "service.properties"
    settings = broker.settings("admin", "${env:SERVICE_PASSWORD}")
    properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    words = [sys.executable, "-m", "barnabas", "pipeline", "serve", "--listen", "127.0.0.1:0"]
    words += ["--bootstrap", broker.bootstrap, "--state", str(tmp_path), "--command-config", str(properties)]
    environment = {"PYTHONPATH": str(REPOSITORY / "src"), "SERVICE_PASSWORD": USERS["admin"]}
    service = ServerProcess(words, is_ready=lambda line: "listen on" in line, environment=environment)
    try:
        service.wait_ready(PATIENCE_S)
    finally:
        assert service.stop() == 0, service.output_text()
    assert USERS["admin"] not in service.output_text()
