"""The console before Apache Kafka: every page and every question answers, and says what Kafka does not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import httpx
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.consumer import Consumer
from barnabas.client.sync.producer import Producer
from barnabas.console.pages import SECTIONS
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import LATEST
from tests.peers.kafka import KafkaBroker, kafka_broker, require_kafka
from tests.scenario.console.test_browser import DARK_PAGES, PAGES
from tests.support.browser import browsing, chromium, violations
from tests.support.console import RunningConsole, form_token, running_console, submit, words
from tests.support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.slow]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}
ORDERS = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    require_kafka()
    named = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with kafka_broker(tmp_path_factory.mktemp("kafka"), **named) as broker:
        fill(broker.bootstrap)
        yield broker


def fill(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic("orders", 3), NewTopic("short-lived", 1)])
    with Producer(bootstrap) as producer:
        for number in range(ORDERS):
            producer.send("orders", json.dumps({"id": number}).encode(), key=f"c-{number % 7}".encode())
        producer.flush()
    for group, protocol in (("billing", "classic"), ("shipping", "consumer")):
        settings = {"group.protocol": protocol}
        with Consumer(
            bootstrap, group=group, topics=["orders"], auto_offset_reset="earliest", **settings
        ) as consumer:
            read = 0
            while read < 50:
                read += len(consumer.poll(timeout_ms=1_000, max_records=50 - read))


@pytest.fixture(scope="module")
def console(kafka: KafkaBroker) -> Iterator[RunningConsole]:
    with running_console(kafka.bootstrap) as console:
        yield console


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.client() as client:
        yield client


@pytest.fixture(scope="module")
def admin(kafka: KafkaBroker) -> Iterator[Admin]:
    with Admin(kafka.bootstrap) as admin:
        yield admin


@pytest.mark.parametrize("path", [*PAGES, "/group?id=shipping", "/transactions?hanging=true"])
def test_every_page_answers(client: httpx.Client, admin: Admin, path: str) -> None:
    (broker,) = admin.describe_cluster().brokers
    path = path.format(broker=broker.broker_id)
    answer = client.get(path) if "live=true" not in path else client.get(path, timeout=60)
    expected = 404 if path == "/nothing" else 200
    assert answer.status_code == expected, words(answer)
    assert "The page failed" not in answer.text


def test_every_question_answers(client: httpx.Client) -> None:
    values = {
        "{topic}": "orders",
        "{partition:int}": "0",
        "{offset:int}": "1",
        "{broker:int}": "1",
        "{id:int}": "1",
    }
    for section in SECTIONS:
        for question in section.questions:
            path = question.path
            for name, value in values.items():
                path = path.replace(name, value)
            assert "{" not in path, path
            answer = client.get(path, params={"id": "billing", "name": "none"})
            found = answer.json()
            if answer.status_code in (404, 409, 501):
                assert len(found["message"].split()) > 2, f"{path}: {found}"
            else:
                assert answer.status_code == 200, f"{path}: {found}"


def test_the_pages_say_what_an_admin_client_says(client: httpx.Client, admin: Admin) -> None:
    overview = client.get("/api/overview").json()
    assert overview["cluster_id"] == admin.describe_cluster().cluster_id
    assert overview["topics"] == len(admin.list_topics())
    places = [TopicPartition("orders", each) for each in range(3)]
    ends = admin.list_offsets(dict.fromkeys(places, LATEST))
    topic = client.get("/api/topics/orders").json()
    assert [each["end_offset"] for each in topic["partitions"]] == list(ends.values())
    assert topic["row"]["records"] == ORDERS
    groups = {each["group_id"]: each for each in client.get("/api/groups").json()["rows"]}
    assert groups["billing"]["lag_records"] == sum(ends.values()) - 50
    assert (groups["billing"]["kind"], groups["shipping"]["kind"]) == ("classic", "consumer")
    billing = client.get("/api/group", params={"id": "billing"}).json()
    committed = {(each["topic"], each["partition"]): each["committed"] for each in billing["offsets"]}
    assert committed == {
        (at.topic, at.partition): offset for at, offset in admin.list_group_offsets("billing").items()
    }


def test_what_kafka_does_not_tell_is_said_in_words(client: httpx.Client) -> None:
    assert "this cluster does not show what clients say of themselves" in words(client.get("/clients"))
    assert "Only the offsets are known" in words(client.get("/topics/orders/partitions/0"))
    assert "a token needs a login by SASL or TLS" in words(client.get("/access/tokens"))


def test_changes_are_made_in_kafka(client: httpx.Client, admin: Admin) -> None:
    made = submit(client, "/new-topic", "/new-topic", name="made-here", partitions="2")
    assert "Created topic made-here." in words(made)
    sent = submit(
        client, "/topics/made-here/produce", "/topics/made-here/produce", value="hello", partition="1"
    )
    assert "Written to partition 1 at offset 0." in words(sent)
    settings = "/topics/made-here/settings"
    submit(client, settings, settings, name="retention.ms", value="86400000")
    described = words(client.get(settings))
    assert "this topic" in described
    reset = {"form_token": form_token(client.get("/group/reset?id=billing"))}
    preview = client.post("/group/reset/preview?id=billing", data={**reset, "to": "earliest"})
    targets = re.findall(r'name="target" value="([^"]+)"', preview.text)
    done = client.post("/group/reset?id=billing", data={**reset, "target": targets}, follow_redirects=True)
    assert "Reset 3 partitions of billing." in words(done)
    assert set(admin.list_group_offsets("billing").values()) == {0}
    gone = submit(client, "/topics/made-here/manage", "/topics/made-here/delete", confirm="made-here")
    assert "Deleted topic made-here." in words(gone)
    eventually(lambda: "made-here" not in {each.name for each in admin.list_topics()})


def test_an_open_transaction_and_rules_and_users(client: httpx.Client, kafka: KafkaBroker) -> None:
    with Producer(kafka.bootstrap, transactional_id="half-way") as producer:
        producer.begin_transaction()
        producer.send("orders", b"{}", partition=0)
        producer.flush()
        assert "half-way" in words(client.get("/transactions"))
        producer.abort_transaction()
    rule = {
        "permission": "ALLOW",
        "principal": "User:alice",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource": "orders",
        "pattern": "LITERAL",
        "host": "*",
    }
    assert "Added: ALLOW READ to User:alice" in words(submit(client, "/access", "/access/add", **rule))
    assert client.get("/api/access?search=alice").json() == [rule]
    fields = {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": "4096"}
    path = "/access/users"
    submit(client, path, f"{path}/add", **fields, password="a long one", again="a long one")
    eventually(lambda: "carol" in words(client.get(path)), "the user is shown")


def test_the_pages_before_kafka_are_accessible_in_a_browser(console: RunningConsole) -> None:
    with chromium() as found, browsing(found, console.url, None) as browser:
        problems: dict[str, list[str]] = {}
        for path in PAGES:
            page = browser.open(path)
            problems |= {f"{path}: {each}": nodes for each, nodes in violations(page).items()}
            page.context.close()
        for path in DARK_PAGES:
            page = browser.open(path, is_dark=True)
            problems |= {f"{path} dark: {each}": nodes for each, nodes in violations(page).items()}
            page.context.close()
        assert problems == {}
