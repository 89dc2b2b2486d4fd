"""The test kit over HTTP, as a test in another language uses it."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from barnabas.testing.http.interface import BODY_BYTES_MAX
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]


class Control:
    """A broker of its own process, and its control interface."""

    def __init__(self, process: ServerProcess) -> None:
        words = process.output_text().split()
        listeners = next(each for each in words if each.startswith("PLAINTEXT://"))
        self.bootstrap = listeners.strip(",").replace("PLAINTEXT://", "")
        self._url = next(each for each in words if each.endswith("/openapi.json")).removesuffix(
            "/openapi.json"
        )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            found = answer.read()
        return json.loads(found) if found else None

    def refusal(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            self.ask(method, path, body)
        with refused.value as answer:
            return answer.code, json.loads(answer.read())["message"]


@contextmanager
def controlled(directory: Path, *more: str) -> Iterator[Control]:
    words = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(directory), "--listener",
             "PLAINTEXT://127.0.0.1:0", "--control", "127.0.0.1:0", *more]  # fmt: skip
    process = ServerProcess(
        words,
        is_ready=lambda line: line.startswith("control on"),
        environment={"PYTHONPATH": str(REPOSITORY / "src")},
    )
    try:
        process.wait_ready(PATIENCE_S)
        yield Control(process)
    finally:
        assert process.stop() == 0


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    with controlled(tmp_path) as control:
        yield control


def test_a_rule_is_added_awaited_and_removed(control: Control) -> None:
    control.ask("PUT", "/topics/orders", {"partitions": 1})
    rule = control.ask(
        "POST",
        "/faults",
        {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2},
    )
    assert rule["hits"] == 0
    producer = Producer({"bootstrap.servers": control.bootstrap, "retry.backoff.ms": 10})
    producer.produce("orders", b"one", key=b"\xff")
    assert producer.flush(30) == 0
    assert control.ask("POST", f"/faults/{rule['number']}/wait?hits=2")["hits"] == 2
    assert len(control.ask("GET", "/requests?api=Produce")) == 3
    (record,) = control.ask("GET", "/topics/orders/records")
    assert record["value"] == {"base64": "b25l", "text": "one"}
    assert record["key"] == {"base64": "/w=="}
    control.ask("DELETE", f"/faults/{rule['number']}")
    assert control.ask("GET", "/faults") == []
    another = control.ask("POST", "/faults", {"api": "Fetch", "delay": "1ms"})
    assert another["number"] != rule["number"], "a late request for the rule that was removed finds none"


def test_zombies_are_made_over_http(control: Control) -> None:
    control.ask("PUT", "/topics/orders", {"partitions": 1})
    settings = {"bootstrap.servers": control.bootstrap, "transactional.id": "t", "log_level": 0}
    zombie = Producer(settings)
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce("orders", b"from a zombie")
    zombie.flush(30)
    control.ask("POST", "/producers/t/fence")
    with pytest.raises(KafkaException):
        zombie.commit_transaction(30)
    member = Consumer({"bootstrap.servers": control.bootstrap, "group.id": "g", "log_level": 0})
    member.subscribe(["orders"])
    while not member.assignment():
        member.poll(0.1)
    control.ask("POST", "/groups/g/rebalance")
    assert control.ask("DELETE", "/groups/g/members") == {"removed": 1}
    assert any("partitions are brought online" in line for line in control.ask("GET", "/log"))
    member.close()


def test_time_moves_and_the_disk_fails(control: Control) -> None:
    control.ask("PUT", "/topics/orders", {"configs": {"retention.ms": "3600000"}})
    producer = Producer({"bootstrap.servers": control.bootstrap})
    producer.produce("orders", b"old")
    assert producer.flush(30) == 0
    control.ask("POST", "/time", {"advance": "2h"})
    assert control.ask("GET", "/topics/orders/records") == []
    control.ask("PUT", "/disk", {"state": "stalled", "under": "orders"})
    producer.produce("orders", b"late")
    assert producer.flush(1) == 1  # the write waits, and the broker's loop with it
    control.ask("PUT", "/disk", {"state": "healthy"})
    assert producer.flush(30) == 0


def test_bad_requests_are_answered_in_words(control: Control) -> None:
    assert control.refusal("POST", "/faults", {"error": "NOT_LEADER"}) == (
        400,
        "there is no error 'NOT_LEADER'; did you mean NOT_LEADER_OR_FOLLOWER?",
    )
    assert control.refusal("POST", "/faults", {"colour": "red"})[0] == 400
    assert control.refusal("POST", "/faults", [])[0] == 400
    assert control.refusal("POST", "/faults", {"answer": "print"})[0] == 400
    assert control.refusal("POST", "/faults", {"action": "move-leader"})[0] == 400
    assert control.refusal("POST", "/groups/none/rebalance")[0] == 400
    assert control.refusal("GET", "/faults/7") == (404, "there is no fault 7")
    assert control.refusal("PATCH", "/faults") == (405, "/faults takes GET, POST, DELETE")
    assert control.refusal("GET", "/nothing")[0] == 404
    assert control.refusal("POST", "/time", {"advance": "soon"})[0] == 400
    assert control.refusal("POST", "/groups/g/wait?state=Stable&timeout_s=0.1")[0] == 408
    assert control.refusal("POST", "/groups/g/wait?state=Stable&timeout_s=nan")[0] == 400
    assert control.refusal("POST", "/groups/g/wait?sate=Stable") == (
        400,
        "the query names sate; write state, members, timeout_s",
    )
    assert control.refusal("POST", "/faults", {"error": 6, "topic": 5})[0] == 400
    assert control.refusal("POST", "/brokers/77/kill")[0] == 404
    assert control.refusal("POST", "/cuts", {"between": [1, 2]})[0] == 400
    assert control.refusal("POST", "/snapshots/1/restore")[0] == 404


def test_a_document_that_would_hold_the_loop_is_refused(control: Control) -> None:
    assert control.refusal("POST", "/faults", {"topic": "x" * BODY_BYTES_MAX})[0] == 413
    assert control.refusal("POST", "/faults", {"topic": "x" * 1_000_000})[0] == 400


def test_the_interface_describes_itself(control: Control) -> None:
    page = control.ask("GET", "/openapi.json")
    assert page["openapi"] == "3.1.0"
    assert set(page["paths"]["/faults"]) == {"get", "post", "delete"}


def publish(control: Control, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": control.bootstrap, "retry.backoff.ms": 10, "log_level": 0})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def texts(control: Control, topic: str) -> list[str]:
    return [each["value"]["text"] for each in control.ask("GET", f"/topics/{topic}/records")]


def test_a_broker_has_lives_and_snapshots(control: Control) -> None:
    (broker,) = control.ask("GET", "/brokers")
    path = f"/brokers/{broker['id']}"
    assert broker["state"] == "running"
    assert broker["is_controller"]
    control.ask("PUT", "/topics/orders", {"partitions": 1})
    publish(control, "orders", b"one")
    kept = control.ask("POST", "/snapshots")["snapshot"]
    publish(control, "orders", b"two")
    control.ask("POST", f"{path}/kill")
    assert control.ask("GET", "/brokers")[0]["state"] == "stopped"
    assert control.refusal("GET", "/topics/orders/records")[0] == 409
    control.ask("POST", f"{path}/restart")
    assert texts(control, "orders") == ["one", "two"]
    control.ask("POST", f"/snapshots/{kept}/restore")
    assert texts(control, "orders") == ["one"]
    control.ask("POST", f"{path}/pause")
    assert control.ask("GET", "/brokers")[0]["state"] == "paused"
    control.ask("POST", f"{path}/resume")
    publish(control, "orders", b"three")


def test_a_broker_that_halts_can_be_looked_at_and_restarted(control: Control) -> None:
    control.ask("PUT", "/topics/orders", {"partitions": 1})
    control.ask("PUT", "/disk", {"state": "ENOSPC"})
    settings = {"bootstrap.servers": control.bootstrap, "message.timeout.ms": 1_000, "log_level": 0}
    producer = Producer(settings)
    producer.produce("orders", b"lost")
    producer.flush(30)
    (broker,) = control.ask("GET", "/brokers")
    assert broker["state"] == "halted"
    assert "No space left" in broker["halt_reason"]
    control.ask("POST", f"/brokers/{broker['id']}/restart")
    publish(control, "orders", b"kept")
    assert texts(control, "orders") == ["kept"]


def test_a_wait_ends_with_its_broker(control: Control) -> None:
    """A call that waits does not outlive the broker, and holds up neither other calls nor the stop."""
    (broker,) = control.ask("GET", "/brokers")
    answers: list[tuple[int, str]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(control.refusal("POST", "/groups/g/wait?state=Stable&timeout_s=50"))
    )
    waiting.start()
    time.sleep(0.5)  # it waits by then
    control.ask("POST", f"/brokers/{broker['id']}/kill")
    waiting.join(40)
    assert [status for status, _ in answers] == [409]
    rule = control.ask("POST", "/faults", {"api": "Produce", "observe": True})
    endless = threading.Thread(
        target=lambda: _ignoring_errors(
            lambda: control.ask("POST", f"/faults/{rule['number']}/wait?timeout_s=3000")
        ),
        daemon=True,
    )
    endless.start()


def _ignoring_errors(call: Callable[[], object]) -> None:
    with suppress(OSError):  # the server has gone
        call()


def test_a_cluster_is_controlled_over_http(tmp_path: Path) -> None:
    with controlled(tmp_path, "--brokers", "3") as control:
        assert [each["id"] for each in control.ask("GET", "/brokers")] == [1, 2, 3]
        assert len(control.bootstrap.split(",")) == 3
        control.ask("PUT", "/topics/orders", {"partitions": 1, "replication_factor": 3})
        partition = "/topics/orders/partitions/0"
        control.ask("POST", f"{partition}/wait?in_sync=true")
        for to in (2, 3):
            assert control.ask("PUT", f"{partition}/leader", {"to": to})["leader"] == to
        publish(control, "orders", b"one")

        rule = control.ask(
            "POST", "/faults", {"api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2, "broker": 3}
        )
        other = control.ask("POST", "/faults", {"api": "Produce", "drop": "before", "broker": 1})
        every = control.ask("POST", "/faults", {"api": "Metadata", "observe": True})
        publish(control, "orders", b"two")
        assert control.ask("GET", f"/faults/{rule['number']}")["hits"] == 2
        assert control.ask("GET", f"/faults/{other['number']}")["hits"] == 0
        assert control.ask("GET", f"/faults/{every['number']}")["hits"] >= 1
        assert {each["broker"] for each in control.ask("GET", "/requests?api=Produce")} == {3}
        control.ask("DELETE", "/faults")

        control.ask("POST", "/brokers/3/kill")
        assert control.ask("POST", f"{partition}/wait?leader_is_not=3")["leader"] in (1, 2)
        publish(control, "orders", b"three")
        control.ask("POST", "/brokers/3/restart")
        assert control.ask("POST", f"{partition}/wait?in_sync=true")["in_sync"] == [1, 2, 3]
        assert control.ask("POST", "/cuts", {"between": [1, 3]}) == [[1, 3]]
        control.ask("DELETE", "/cuts")
        assert control.ask("GET", "/cuts") == []
        control.ask("POST", "/brokers/2/pause")
        control.ask("POST", "/brokers/2/resume")
        control.ask("POST", "/brokers/2/expire-session")
        control.ask("POST", "/time", {"advance": "10s"})
        assert control.ask("POST", f"{partition}/wait?in_sync=true")["in_sync"] == [1, 2, 3]
        assert texts(control, "orders") == ["one", "two", "three"]
        assert control.refusal("GET", "/log") == (400, "each broker has a log; name one, such as ?broker=1")
        assert control.ask("GET", "/log?broker=3")
        assert control.refusal("POST", "/brokers/4/kill")[0] == 404
        assert control.refusal("PUT", f"{partition}/leader", {"to": 9})[0] == 400


def test_two_clusters_do_not_share_a_directory(tmp_path: Path) -> None:
    with controlled(tmp_path, "--brokers", "2"):
        words = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(tmp_path), "--brokers", "2",
                 "--control", "127.0.0.1:0", "--listener", "PLAINTEXT://127.0.0.1:0"]  # fmt: skip
        second = ServerProcess(words, environment={"PYTHONPATH": str(REPOSITORY / "src")})
        assert second.wait(60) != 0
        assert "another cluster is running on" in second.output_text()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--set", "broker.id=1"], "broker.id is set by the cluster itself"),
        (["--zookeeper", "local"], "zookeeper.connect is set by the cluster itself"),
        (["--console", "127.0.0.1:0"], "leave out --console"),
    ],
)
def test_settings_of_a_controlled_cluster_are_checked(tmp_path: Path, more: list[str], told: str) -> None:
    words = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(tmp_path), "--brokers", "2",
             "--control", "127.0.0.1:0", *more]  # fmt: skip
    process = ServerProcess(words, environment={"PYTHONPATH": str(REPOSITORY / "src")})
    assert process.wait(60) == 2
    assert told in process.output_text()


def test_it_is_served_on_loopback_alone(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(tmp_path), "--control", "0.0.0.0:0"]
    process = ServerProcess(
        words, is_ready=lambda line: False, environment={"PYTHONPATH": str(REPOSITORY / "src")}
    )
    assert process.wait(60) == 2
    assert "only loopback may reach it" in process.output_text()
