"""Transactions, the cluster, rules, users, quotas, clients and pipelines, over HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import httpx
import pytest

from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from tests.support.broker import BarnabasBroker
from tests.support.console import RunningConsole, running_console, submit, words


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.client() as client:
        yield client


def test_an_open_transaction_is_shown(client: httpx.Client, broker: BarnabasBroker, admin: Admin) -> None:
    with Producer(broker.bootstrap, transactional_id="console-tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("service-20", b"x")
        producer.flush()
        page = words(client.get("/transactions"))
        assert "console-tx Ongoing" in page
        assert "service-20-0" in page
        found = client.get("/api/transactions").json()
        (listed,) = admin.list_transactions()
        assert [each["producer_id"] for each in found] == [listed.producer_id]
        assert found[0]["partitions"] == [["service-20", 0]]
        producer.abort_transaction()
    hanging = client.get("/transactions?hanging=true")
    assert "No partition has a transaction that no coordinator knows." in words(hanging)


def test_log_directories_and_elections(client: httpx.Client, admin: Admin, broker: BarnabasBroker) -> None:
    found = client.get("/api/cluster/log-directories").json()
    told = admin.describe_log_dirs()
    assert [(row["broker_id"], row["path"], row["replicas"]) for row in found] == [
        (broker_id, path, len(each.replicas))
        for broker_id, dirs in told.items()
        for path, each in dirs.items()
    ]
    assert str(broker.data_directory) in words(client.get("/cluster"))
    assert client.get("/api/cluster/reassignments").json() == []
    elected = submit(client, "/cluster", "/cluster/election", kind="preferred", topic="orders")
    assert "The election is done: 3 partitions." in words(elected)
    unclean = submit(client, "/cluster", "/cluster/election", kind="unclean", topic="orders")
    assert unclean.status_code == 400


def test_a_plan_of_moves_is_shown_first(client: httpx.Client, admin: Admin) -> None:
    (broker_id,) = (each.broker_id for each in admin.describe_cluster().brokers)
    nothing = submit(
        client, "/cluster", "/cluster/reassignment/plan", topics="orders", brokers=str(broker_id)
    )
    assert "nothing has to move" in words(nothing)
    absent = submit(client, "/cluster", "/cluster/reassignment/plan", topics="orders", brokers="77")
    assert "there is no broker 77" in words(absent)
    move = {"topic": "orders", "partition": 0, "replicas": [broker_id]}
    plan = json.dumps({"version": 1, "partitions": [move]})
    done = submit(client, "/cluster", "/cluster/reassignment", plan=plan)
    assert "1 partitions began to move" in words(done)
    broken = submit(client, "/cluster", "/cluster/reassignment", plan="[" * 5_000)
    assert broken.status_code == 400
    idle = submit(client, "/cluster", "/cluster/reassignment/cancel", topic="orders", partition="0")
    assert idle.status_code == 409


def test_settings_of_a_broker(client: httpx.Client, admin: Admin) -> None:
    (broker_id,) = (each.broker_id for each in admin.describe_cluster().brokers)
    path = f"/cluster/brokers/{broker_id}"
    assert "message.max.bytes" in words(client.get(path))
    submit(client, path, f"{path}/settings", name="log.retention.ms", value="123000")
    resource = (ResourceType.BROKER, str(broker_id))
    (setting,) = admin.describe_configs([resource], ["log.retention.ms"])[resource]
    assert setting.value == "123000"
    submit(client, path, f"{path}/settings", name="log.retention.ms", unset="true")
    (setting,) = admin.describe_configs([resource], ["log.retention.ms"])[resource]
    assert setting.value != "123000"
    refused = submit(client, path, f"{path}/settings", name="no.such.key", value="1")
    assert refused.status_code == 409


def test_clients_that_say_nothing(client: httpx.Client) -> None:
    assert client.get("/clients").status_code == 200
    assert client.get("/api/clients").status_code in (200, 501)


class Service(BaseHTTPRequestHandler):
    """Answers of the pipeline service that the pages need."""

    asked: ClassVar[list[str]] = []
    status: ClassVar[bytes] = (
        b'{"name": "clicks", "connector": {"state": "RUNNING"}, "tasks": [], "pipeline": {"state": "RUNNING",'
        b' "delivery": "exactly-once", "records": 12345, "lag": 7, "dead_letters": 2, "restarts": 1,'
        b' "failures": 0, "last_error": "<b>boom</b>", "since_ms": 1763456400000, "progress": {"batch": 3}}}'
    )

    def answer(self, body: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/connectors?expand=status":
            self.answer(b'{"clicks": {"status": ' + self.status + b"}}")
        elif self.path == "/connectors/clicks/status":
            self.answer(self.status)
        elif self.path == "/connectors/clicks/config":
            self.answer(b'{"source.topic": "clicks"}')
        else:
            self.answer(b'{"message": "no such pipeline"}', 404)

    def do_PUT(self) -> None:
        self.asked.append(self.path)
        self.answer(b"", 202)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the test reads the answers."""


def test_pipelines_are_shown_and_paused(broker: BarnabasBroker) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            with running_console(broker.bootstrap, "--pipelines", url) as console, console.client() as client:
                assert "clicks running exactly-once 12,345 – 7 2 1" in words(client.get("/pipelines"))
                page = client.get("/pipeline?name=clicks")
                assert "&lt;b&gt;boom&lt;/b&gt;" in page.text
                assert "source.topic" in page.text
                paused = submit(client, "/pipeline?name=clicks", "/pipeline/pause?name=clicks")
                assert "Paused clicks." in words(paused)
                assert Service.asked == ["/connectors/clicks/pause"]
                assert client.get("/pipeline?name=missing").status_code == 404
                assert re.search(r"no such pipeline", client.get("/pipeline?name=missing").text)
        finally:
            server.shutdown()
            thread.join()


def test_the_partition_of_the_open_transaction_is_known(client: httpx.Client, admin: Admin) -> None:
    at = TopicPartition("service-20", 0)
    assert admin.describe_producers([at])[at] == []
    assert client.get("/api/topics/service-20/partitions/0").json()["open_transactions"] == []
