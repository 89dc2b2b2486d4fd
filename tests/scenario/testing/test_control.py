"""The test kit over HTTP, as a test in another language uses it."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from barnabas.testing.http.control import BODY_BYTES_MAX
from tests.support.process import ServerProcess

REPOSITORY = Path(__file__).resolve().parents[3]


class Control:
    """A broker of its own process, and its control interface."""

    def __init__(self, process: ServerProcess) -> None:
        words = process.output_text().split()
        self.bootstrap = next(each for each in words if each.startswith("PLAINTEXT://")).strip(",")[12:]
        self._url = next(each for each in words if each.endswith("/openapi.json")).removesuffix(
            "/openapi.json"
        )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = answer.read()
        return json.loads(found) if found else None

    def refusal(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            self.ask(method, path, body)
        with refused.value as answer:
            return answer.code, json.loads(answer.read())["message"]


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    words = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(tmp_path), "--listener",
             "PLAINTEXT://127.0.0.1:0", "--control", "127.0.0.1:0"]  # fmt: skip
    process = ServerProcess(
        words,
        is_ready=lambda line: line.startswith("control on"),
        environment={"PYTHONPATH": str(REPOSITORY / "src")},
    )
    try:
        process.wait_ready(60)
        yield Control(process)
    finally:
        process.stop()


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


def test_a_document_that_would_hold_the_loop_is_refused(control: Control) -> None:
    assert control.refusal("POST", "/faults", {"topic": "x" * BODY_BYTES_MAX})[0] == 413
    assert control.refusal("POST", "/faults", {"topic": "x" * 1_000_000})[0] == 400


def test_the_interface_describes_itself(control: Control) -> None:
    page = control.ask("GET", "/openapi.json")
    assert page["openapi"] == "3.1.0"
    assert set(page["paths"]["/faults"]) == {"get", "post", "delete"}


def test_it_is_served_on_loopback_alone(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(tmp_path), "--control", "0.0.0.0:0"]
    process = ServerProcess(
        words, is_ready=lambda line: False, environment={"PYTHONPATH": str(REPOSITORY / "src")}
    )
    assert process.wait(60) == 2
    assert "only loopback may reach it" in process.output_text()
