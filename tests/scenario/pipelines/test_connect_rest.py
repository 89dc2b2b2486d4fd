"""Connect's REST interface over a real socket: by plain HTTP, and by a third-party client of Connect."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest

from barnabas.pipelines.service.store import TOPIC, Change, Claim, PipelineStore, Stored
from tests.scenario.pipelines.conftest import RunningService, running_service
from tests.support.topics import consume, produce
from tests.support.waiting import PATIENCE_S

CONFIG = {"connector.class": "FilesSink", "topics": "clicks", "path": "out", "value.schema": "id BIGINT"}


@pytest.fixture
def http(service: RunningService) -> Any:
    with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as client:
        yield client


def state_of(http: httpx.Client, name: str, wanted: str) -> dict[str, Any]:
    """The status, once the state is `wanted`."""
    for _ in range(2_000):
        status: dict[str, Any] = http.get(f"/connectors/{name}/status").json()
        if status["pipeline"]["state"] == wanted:
            return status
    raise AssertionError(f"{name} is {status}, not {wanted}")


def test_a_connector_lives_from_creation_to_deletion(http: httpx.Client, service: RunningService) -> None:
    assert http.get("/").json()["kafka_cluster_id"] == "cluster"
    assert http.get("/connectors").json() == []
    created = http.post("/connectors", json={"name": "lake", "config": CONFIG})
    assert created.status_code == 201
    assert created.headers["location"] == "/connectors/lake"
    info = {
        "name": "lake",
        "config": {**CONFIG, "name": "lake"},
        "tasks": [{"connector": "lake", "task": 0}],
        "type": "sink",
    }
    assert created.json() == info
    assert http.get("/connectors/lake").json() == info
    assert http.get("/connectors/lake/config").json() == info["config"]
    assert http.get("/connectors").json() == ["lake"]
    status = state_of(http, "lake", "RUNNING")
    assert status["connector"] == {"state": "RUNNING", "worker_id": "worker:1"}
    assert status["tasks"] == [{"id": 0, "state": "RUNNING", "worker_id": "worker:1"}]
    assert status["pipeline"]["delivery"] == "exactly-once"
    assert http.get("/connectors/lake/tasks/0/status").json() == status["tasks"][0]
    assert http.get("/connectors/lake/tasks").json()[0]["id"] == {"connector": "lake", "task": 0}
    assert http.get("/connectors/lake/topics").json() == {"lake": {"topics": ["clicks"]}}
    expanded = http.get("/connectors?expand=status&expand=info").json()
    assert expanded["lake"]["info"] == info
    assert expanded["lake"]["status"]["name"] == "lake"
    assert http.put("/connectors/lake/pause").status_code == 202
    state_of(http, "lake", "PAUSED")
    assert http.put("/connectors/lake/resume").status_code == 202
    state_of(http, "lake", "RUNNING")
    assert http.post("/connectors/lake/restart").status_code == 204
    assert http.post("/connectors/lake/restart?includeTasks=true").status_code == 202
    state_of(http, "lake", "RUNNING")
    assert http.put("/connectors/lake/stop").status_code == 204
    assert state_of(http, "lake", "STOPPED")["tasks"] == []
    assert http.delete("/connectors/lake").status_code == 204
    assert http.get("/connectors/lake").status_code == 404


def test_configurations_are_set_and_patched(http: httpx.Client) -> None:
    assert http.put("/connectors/lake/config", json=CONFIG).status_code == 201
    assert http.put("/connectors/lake/config", json={**CONFIG, "path": "lake"}).status_code == 200
    patched = http.patch(
        "/connectors/lake/config", json={"format": "json", "value.schema": None, "samples": 5}
    )
    assert patched.status_code == 200
    assert patched.json()["config"] == {
        "connector.class": "FilesSink",
        "topics": "clicks",
        "path": "lake",
        "format": "json",
        "samples": "5",
        "name": "lake",
    }


def test_errors_have_connects_codes_and_bodies(http: httpx.Client) -> None:
    http.put("/connectors/lake/config", json=CONFIG)
    cases = [
        (http.get("/connectors/none"), 404),
        (http.put("/connectors/none/pause"), 404),
        (http.delete("/connectors/none"), 404),
        (http.get("/connectors/lake/tasks/3/status"), 404),
        (http.get("/connector-plugins/Nothing/config"), 404),
        (http.get("/nowhere"), 404),
        (http.post("/connectors", json={"name": "lake", "config": CONFIG}), 409),
        (http.post("/connectors", json={"name": "x"}), 400),
        (http.post("/connectors", content=b"{"), 400),
        (http.post("/connectors", json=[1]), 422),
        (http.put("/connectors/lake/config", json={**CONFIG, "name": "other"}), 400),
        (http.put("/connectors/new/config", json={**CONFIG, "pth": "x"}), 400),
        (http.delete("/connectors/lake/offsets"), 400),
        (http.patch("/connectors", json={}), 405),
    ]
    for answer, code in cases:
        assert answer.status_code == code, answer.text
        assert answer.json()["error_code"] == code
        assert answer.json()["message"]
    invalid = http.put("/connectors/new/config", json={**CONFIG, "format": "parkett"}).json()["message"]
    assert "1 error(s)" in invalid
    assert "did you mean 'parquet'?" in invalid


def test_a_change_that_the_broker_refuses_is_not_in_the_way_of_the_next(http: httpx.Client) -> None:
    http.put("/connectors/a/config", json=CONFIG).raise_for_status()
    refused = http.put("/connectors/b/config", json={**CONFIG, "path": "x" * 1_100_000})
    assert refused.status_code == 500
    assert "exceeds the maximum" in refused.json()["message"]
    http.put("/connectors/c/config", json=CONFIG).raise_for_status()
    assert http.get("/connectors").json() == ["a", "c"]


def test_plugins_are_listed_and_judge_configurations(http: httpx.Client) -> None:
    classes = {row["class"]: row["type"] for row in http.get("/connector-plugins").json()}
    assert classes["JdbcSink"] == "sink"
    assert classes["FilesSource"] == "source"
    keys = http.get("/connector-plugins/JdbcSink/config").json()
    assert next(key for key in keys if key["name"] == "password")["type"] == "PASSWORD"
    judged = http.put("/connector-plugins/FilesSink/config/validate", json={**CONFIG, "format": "x"}).json()
    assert judged["error_count"] == 1
    (bad,) = [row["value"] for row in judged["configs"] if row["value"]["errors"]]
    assert bad["name"] == "format"
    assert "parquet" in bad["recommended_values"]
    fine = http.put("/connector-plugins/FilesSink/config/validate", json=CONFIG).json()
    assert fine["error_count"] == 0


def test_a_failure_is_in_the_status(http: httpx.Client, service: RunningService) -> None:
    service.drivers.error = "the disk is full"
    http.put("/connectors/lake/config", json={**CONFIG, "restart.max_attempts": "0"})
    status = state_of(http, "lake", "FAILED")
    assert status["connector"]["trace"] == "the disk is full"
    assert status["tasks"][0]["state"] == "FAILED"
    assert "barnabas_pipeline_failed" in http.get("/metrics").text
    service.drivers.error = None
    http.post("/connectors/lake/restart?includeTasks=true&onlyFailed=true")
    state_of(http, "lake", "RUNNING")


def test_offsets_are_shown_set_and_reset_by_a_new_generation(
    http: httpx.Client, service: RunningService
) -> None:
    produce(service.bootstrap, "clicks", [{"id": at} for at in range(9)])
    http.put("/connectors/lake/config", json=CONFIG)
    assert http.get("/connectors/lake/offsets").json() == {"offsets": []}
    http.put("/connectors/lake/stop")
    state_of(http, "lake", "STOPPED")
    row = {"partition": {"kafka_topic": "clicks", "kafka_partition": 0}, "offset": {"kafka_offset": 4}}
    assert http.patch("/connectors/lake/offsets", json={"offsets": [row]}).status_code == 200
    assert http.get("/connectors/lake/offsets").json() == {"offsets": [row]}
    http.put("/connectors/lake/resume")
    state_of(http, "lake", "RUNNING")
    assert service.drivers.started[-1] == ("lake", 1, json.dumps({"clicks": {"0": 4}}))
    http.put("/connectors/lake/stop")
    state_of(http, "lake", "STOPPED")
    assert http.delete("/connectors/lake/offsets").status_code == 200
    assert http.get("/connectors/lake/offsets").json() == {"offsets": []}
    http.put("/connectors/lake/resume")
    state_of(http, "lake", "RUNNING")
    assert [started[1:] for started in service.drivers.started if started[0] == "lake"][-1] == (2, None)


def test_a_service_that_is_started_again_carries_on(pipelines_broker: str, tmp_path: Path) -> None:
    secret = {
        **CONFIG, "connector.class": "JdbcSink", "connection.url": "postgresql://h/d", "table": "t",
        "pk.fields": "id", "connection.password": "${env:HOME}",
    }  # fmt: skip
    del secret["path"]
    with running_service(pipelines_broker, tmp_path) as first, httpx.Client(base_url=first.url) as http:
        for name in ("a", "b", "c"):
            http.put(f"/connectors/{name}/config", json=secret).raise_for_status()
        http.put("/connectors/b/pause")
        http.delete("/connectors/c")
    with running_service(pipelines_broker, tmp_path) as second, httpx.Client(base_url=second.url) as http:
        assert http.get("/connectors").json() == ["a", "b"]
        state_of(http, "a", "RUNNING")
        state_of(http, "b", "PAUSED")
        assert http.get("/connectors/a/config").json()["connection.password"] == "${env:HOME}"
    stored = b"".join(each.value or b"" for each in consume(pipelines_broker, TOPIC))
    assert b"${env:HOME}" in stored
    assert str(Path.home()).encode() + b'"' not in stored


def test_of_two_services_the_younger_runs_the_pipelines(pipelines_broker: str, tmp_path: Path) -> None:
    with (
        running_service(pipelines_broker, tmp_path, "elder:1") as elder,
        httpx.Client(base_url=elder.url) as at_elder,
    ):
        at_elder.put("/connectors/a/config", json=CONFIG).raise_for_status()
        state_of(at_elder, "a", "RUNNING")
        with (
            running_service(pipelines_broker, tmp_path, "younger:2") as younger,
            httpx.Client(base_url=younger.url) as at_younger,
        ):
            state_of(at_younger, "a", "RUNNING")
            left = state_of(at_elder, "a", "UNASSIGNED")
            assert left["pipeline"]["last_error"] == "the pipeline service at younger:2 has taken over"
            refusals = [
                at_elder.put("/connectors/b/config", json=CONFIG),
                at_elder.put("/connectors/a/pause"),
                at_elder.post("/connectors/a/restart"),
                at_elder.delete("/connectors/a/offsets"),
                at_elder.delete("/connectors/a"),
            ]
            assert [each.status_code for each in refusals] == [503] * 5
            assert "younger:2 has taken over" in refusals[0].json()["message"]
            at_younger.put("/connectors/b/config", json=CONFIG).raise_for_status()
            state_of(at_younger, "b", "RUNNING")
            while "b" not in at_elder.get("/connectors").json():  # it still sees what happens
                pass
            state_of(at_elder, "b", "UNASSIGNED")
            at_younger.delete("/connectors/a")
            while "a" in at_elder.get("/connectors").json():
                pass
            assert [name for name, *_ in elder.drivers.started] == ["a"]
            assert [name for name, *_ in younger.drivers.started] == ["a", "b"]
        state_of(at_elder, "b", "RUNNING")  # the younger one has ended, and released its claim
        assert at_elder.put("/connectors/b/pause").status_code == 202
        state_of(at_elder, "b", "PAUSED")
        at_elder.put("/connectors/b/resume")
    with (
        running_service(pipelines_broker, tmp_path, "elder:1") as again,
        httpx.Client(base_url=again.url) as http,
    ):
        state_of(http, "b", "RUNNING")


def test_what_another_release_has_stored_concerns_that_pipeline_alone(
    pipelines_broker: str, tmp_path: Path
) -> None:
    def store(*rows: tuple[str, dict[str, Any]]) -> None:
        for name, row in rows:
            produce(pipelines_broker, TOPIC, [row], key=name.encode())

    alien = {
        "config": {"connector.class": "QuantumSink", "url": "x://u:hunter2@h/d"},
        "target": "RUNNING",
        "generation": 0,
    }
    good = {"config": CONFIG, "target": "RUNNING", "generation": 0}
    with running_service(pipelines_broker, tmp_path):
        pass
    store(("alien", alien), ("torn", {"target": "RUNNING"}), ("a", good))
    with (
        running_service(pipelines_broker, tmp_path) as service,
        httpx.Client(base_url=service.url, timeout=PATIENCE_S) as http,
    ):
        state_of(http, "a", "RUNNING")
        status = state_of(http, "alien", "FAILED")
        assert "there is no connector 'QuantumSink'" in status["connector"]["trace"]
        assert sorted(http.get("/connectors?expand=status&expand=info").json()) == ["a", "alien"]
        for shown in ("/connectors/alien", "/connectors/alien/config", "/connectors/alien/tasks"):
            assert "hunter2" not in http.get(shown).text
            assert "[hidden]" in http.get(shown).text
        assert http.post("/connectors/alien/restart").status_code == 409
        assert http.get("/connectors/alien/offsets").status_code == 409
        store(("later", alien), ("torn", {}), ("service:claim", {"worker_id": "?"}), ("b", good))
        while "b" not in http.get("/connectors").json():  # it still sees what happens
            pass
        state_of(http, "later", "FAILED")
        http.put("/connectors/alien/config", json=CONFIG).raise_for_status()
        state_of(http, "alien", "RUNNING")
        assert http.delete("/connectors/later").status_code == 204
        assert http.get("/connectors").json() == ["a", "alien", "b"]


async def test_what_an_elder_was_answered_before_it_saw_the_claim_is_not_lost(pipelines_broker: str) -> None:
    elder, younger = (PipelineStore(lambda _: {"bootstrap.servers": pipelines_broker}, each) for each in "ab")
    async with elder, younger:
        await elder.claim("elder:1")
        await younger.claim("younger:2")
        assert await elder.load() == {}
        assert elder.leader == Claim("b", "younger:2"), "a claim while one opens counts"
        await younger.load()
        late = Stored("late", {"connector.class": "ConsoleSink"})
        await elder.put(late)
        changes = younger.follow()
        assert await anext(changes) == Change("a", name="late", stored=late)
        await elder.delete("late", 3)
        assert await anext(changes) == Change("a", name="late", deleted_generation=3)
        await changes.aclose()


async def test_a_service_has_caught_up_when_it_has_read_what_others_stored(pipelines_broker: str) -> None:
    elder, younger = (PipelineStore(lambda _: {"bootstrap.servers": pipelines_broker}, each) for each in "ab")
    async with elder, younger:
        await elder.claim("elder:1")
        await elder.load()
        await elder.caught_up()
        await younger.put(Stored("p", {"connector.class": "ConsoleSink"}))
        seen: list[str] = []

        async def follow() -> None:
            async for change in elder.follow():
                seen.extend([change.name])

        following = asyncio.create_task(follow())
        await elder.caught_up()
        assert seen == ["p"]
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_a_third_party_client_of_connect_steers_pipelines(service: RunningService) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        connect = pytest.importorskip("kafka_connect", reason="kafka-connect-py is not installed")
    client = connect.KafkaConnect(url=service.url)
    assert client.get_cluster_info()["kafka_cluster_id"] == "cluster"
    assert client.create_connector({"name": "lake", "config": CONFIG})["name"] == "lake"
    assert "lake" in client.list_connectors()
    assert client.get_connector_config("lake")["topics"] == "clicks"
    client.pause_connector("lake")
    client.resume_connector("lake")
    client.restart_connector("lake", include_tasks=True)
    assert client.get_connector_status("lake")["name"] == "lake"
    assert client.list_connector_tasks("lake")[0]["id"]["task"] == 0
    assert client.list_connector_topics("lake") is not None
    assert any(row["class"] == "FilesSink" for row in client.list_connector_plugins())
    judged = client.validate_connector_config("FilesSink", {**CONFIG, "connector.class": "FilesSink"})
    assert judged["error_count"] == 0
    client.stop_connector("lake")
    client.delete_connector("lake")
    assert client.list_connectors() == []


def test_the_command_line_of_a_third_party_steers_pipelines(service: RunningService) -> None:
    kc = Path(sys.executable).with_name("kc")
    if not kc.exists():
        pytest.skip("kafka-connect-py is not installed")

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [kc, "--url", service.url, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout.strip() else None

    assert run("info")["kafka_cluster_id"] == "cluster"
    run("create", "--config-data", json.dumps({"name": "lake", "config": CONFIG}))
    assert run("list") == ["lake"]
    assert run("config", "lake")["connector.class"] == "FilesSink"
    run("pause", "lake")
    run("resume", "lake")
    assert run("status", "lake")["name"] == "lake"
    assert run("list-tasks", "lake")[0]["id"] == {"connector": "lake", "task": 0}
    run("delete", "lake")
    assert run("list") == []


def test_loggers_are_seen_and_changed_as_in_connect(http: httpx.Client) -> None:
    name = "barnabas.a_logger_of_this_test"
    below = logging.getLogger(f"{name}.below")
    assert http.get("/admin/loggers").json()["root"]["level"] in {"WARN", "INFO", "DEBUG"}
    assert http.get("/admin/loggers/no-such").status_code == 404
    answer = http.put(f"/admin/loggers/{name}", json={"level": "debug"})
    assert (answer.status_code, answer.json()) == (200, [name, f"{name}.below"])
    assert below.level == logging.DEBUG
    seen = http.get(f"/admin/loggers/{name}").json()
    assert seen["level"] == "DEBUG"
    assert seen["last_modified"] > 0
    assert http.put(f"/admin/loggers/{name}?scope=cluster", json={"level": "ERROR"}).status_code == 204
    assert below.level == logging.ERROR
    assert http.put(f"/admin/loggers/{name}", json={}).status_code == 400
    assert http.put(f"/admin/loggers/{name}", json={"level": "LOUD"}).status_code == 404
