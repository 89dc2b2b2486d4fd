"""Every change of the console by clicking, in a real browser; an admin client says what has become of it.

ROUTES.md has the table of all pages and changes, with their tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from tests.scenario.cli.test_txn_command import leave_hanging
from tests.scenario.console.conftest import fill, partitions
from tests.support import browser as browser_support
from tests.support.broker import BarnabasBroker, running
from tests.support.browser import Browser, browsing, until
from tests.support.console import RunningConsole, running_console
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.secured_broker import USERS, SecuredBroker, secured_broker
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser_support.chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any, console: RunningConsole) -> Iterator[Browser]:
    with browsing(chromium, console.url, None) as found:
        yield found


def send(page: Any, action: str, **fields: str) -> str:
    """Fill in a form as a visitor does: open what hides it, type, choose, click. Returns the notice."""
    form = page.locator(f"form[action^='{action}']").first
    for folded in form.locator("xpath=ancestor::details[not(@open)]").all():
        folded.locator("summary").first.click()
    for name, value in fields.items():
        control = form.locator(f"[name='{name}']").first
        kind = control.evaluate("each => each.type || each.tagName")
        if kind == "select-one":
            control.select_option(value)
        elif kind == "checkbox":
            control.check()
        else:
            control.fill(value)
    form.locator("button").last.click()
    page.wait_for_load_state()
    notices = page.locator("[role=status]")
    return str(notices.inner_text()) if notices.count() else ""


def test_a_topic_is_altered_grown_and_emptied(browser: Browser, broker: BarnabasBroker, admin: Admin) -> None:
    name = "service-30"
    page = browser.open(f"/topics/{name}/settings")
    base = f"/topics/{name}"
    assert "retention.ms is 70000 now." in send(page, f"{base}/settings", name="retention.ms", value="70000")
    resource = (ResourceType.TOPIC, name)
    (setting,) = admin.describe_configs([resource], ["retention.ms"])[resource]
    assert setting.value == "70000"
    page.click("text=Manage")
    assert "has 4 partitions now" in send(page, f"{base}/partitions", total="4")
    assert len(admin.describe_topics([name])[name].partitions) == 4
    with Producer(broker.bootstrap) as producer:
        producer.send_many(name, [b"x"] * 10, partition=0)
    page.click("text=Manage")
    send(page, f"{base}/records/delete", confirm=name)
    at = TopicPartition(name, 0)
    eventually(lambda: admin.list_offsets({at: EARLIEST})[at] == 10, "the records are deleted")


def test_a_group_loses_its_offsets_and_is_deleted(browser: Browser, admin: Admin) -> None:
    admin.alter_group_offsets(
        "doomed", {**dict.fromkeys(partitions(), 5), TopicPartition("service-31", 0): 0}
    )
    page = browser.open("/group?id=doomed")
    send(page, "/group/offsets/delete", topic="service-31")
    eventually(lambda: set(admin.list_group_offsets("doomed")) == set(partitions()), "offsets are deleted")
    page.goto(page.url)
    send(page, "/group/delete", confirm="doomed")
    assert "doomed" not in {each.group_id for each in admin.list_groups()}


def test_a_broker_is_altered_and_leaders_are_elected(browser: Browser, admin: Admin) -> None:
    (broker_id,) = (each.broker_id for each in admin.describe_cluster().brokers)
    path = f"/cluster/brokers/{broker_id}"
    page = browser.open(path)
    send(page, f"{path}/settings", name="log.retention.ms", value="123000")
    resource = (ResourceType.BROKER, str(broker_id))
    (setting,) = admin.describe_configs([resource], ["log.retention.ms"])[resource]
    assert setting.value == "123000"
    page = browser.open("/cluster")
    assert "The election is done: 3 partitions." in send(page, "/cluster/election", topic="orders")
    send(page, "/cluster/reassignment/plan", topics="orders", brokers=str(broker_id))
    assert "nothing has to move" in page.locator("main").inner_text()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasBroker]:
    """It takes records of transactions that no coordinator knows, as brokers before Kafka 3.6 did."""
    settings = {"message.max.bytes": 12_000_000, "transaction.partition.verification.enable": "false"}
    broker = BarnabasBroker(tmp_path_factory.mktemp("console") / "data", settings=settings)
    with running(broker):
        fill(broker.bootstrap)
        yield broker


def test_a_hanging_transaction_is_aborted(browser: Browser, broker: BarnabasBroker, admin: Admin) -> None:
    at = TopicPartition("service-32", 0)
    leave_hanging(broker.bootstrap, at.topic, 4_711)
    assert admin.list_offsets({at: LATEST}, read_committed=True)[at] == 0
    with Producer(broker.bootstrap, transactional_id="still-open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("service-33", b"x", partition=0)
        producer.flush()
        page = browser.open("/transactions?hanging=true")
        assert "Ongoing" in page.locator("tr", has_text="still-open").inner_text()
        row = page.locator("tr", has_text="4711")
        assert "service-32-0" in row.inner_text()
        assert "Aborted the transaction of producer 4711" in send(page, "/transactions/abort")
        producer.abort_transaction()
    assert admin.list_offsets({at: LATEST}, read_committed=True)[at] == 2
    page = browser.open("/transactions?hanging=true")
    assert page.locator("tr", has_text="4711").count() == 0


def test_a_record_is_copied_and_messages_are_downloaded(browser: Browser, admin: Admin) -> None:
    page = browser.open("/topics/orders/records/0/1")
    page.click("text=Produce a copy")
    before = admin.list_offsets({TopicPartition("orders", 0): LATEST})[TopicPartition("orders", 0)]
    page.click("#produce")
    assert f"Written to partition 0 at offset {before}." in page.locator("[role=status]").inner_text()
    page = browser.open("/topics/service-30/messages")
    with page.expect_download() as waiting:
        page.click("text=Download")
    assert waiting.value.suggested_filename == "service-30.jsonl"


# --- with three brokers ---


class Three(NamedTuple):
    bootstrap: str
    url: str


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    port = free_port()
    directory = str(tmp_path_factory.mktemp("three"))
    command = [sys.executable, "-m", "barnabas", "start", "--brokers", "3", "--data-dir", directory]
    command += ["--listener", "PLAINTEXT://127.0.0.1:0", "--console", f"127.0.0.1:{port}"]
    process = ServerProcess(command, is_ready=lambda line: line.startswith("barnabas ready"))
    try:
        (bootstrap, *_) = re.findall(r"PLAINTEXT://([\d.]+:\d+)", process.wait_ready(PATIENCE_S))
        eventually(lambda: "console: http" in process.output_text(), "the console is ready")
        yield Three(bootstrap, f"http://127.0.0.1:{port}")
    finally:
        assert process.stop() == 0


def replicas_of(admin: Admin, topic: str) -> set[frozenset[int]]:
    return {frozenset(each.replicas) for each in admin.describe_topics([topic])[topic].partitions}


def show_plan(page: Any, **fields: str) -> Any:
    """Ask for a plan. Returns the button that makes it."""
    send(page, "/cluster/reassignment/plan", **fields)
    return page.locator("form[action='/cluster/reassignment']").locator("button").last


def test_partitions_move_after_their_plan_is_shown(chromium: Any, three: Three) -> None:
    with Admin(three.bootstrap) as admin, browsing(chromium, three.url, None) as browser:
        admin.create_topics([NewTopic("moving", 2, 3)])
        page = browser.open("/cluster")
        move = show_plan(page, topics="moving", brokers="2,3", replication="2")
        assert "moving" in page.locator("main table").first.inner_text()
        assert replicas_of(admin, "moving") == {frozenset({1, 2, 3})}, "the plan moves nothing"
        move.click()
        assert "2 partitions began to move" in page.locator("[role=status]").inner_text()
        moved = {frozenset({2, 3})}
        eventually(lambda: replicas_of(admin, "moving") == moved, "the partitions have moved")


def test_a_move_is_followed_and_cancelled(chromium: Any, three: Three) -> None:
    """A throttle keeps the new replica from its leader's records."""
    with (
        Admin(three.bootstrap) as admin,
        Producer(three.bootstrap) as producer,
        browsing(chromium, three.url, None) as browser,
    ):
        everything = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
        admin.create_topics([NewTopic("heavy", assignment={0: [1, 2]}, configs=everything)])
        for _ in range(8):
            producer.publish("heavy", bytes(500_000), partition=0)
        one: dict[str, str | None] = dict.fromkeys(
            (f"{side}.replication.throttled.rate" for side in ("leader", "follower")), "1"
        )
        admin.alter_configs({(ResourceType.BROKER, str(each)): one for each in (1, 2, 3)})
        page = browser.open("/cluster")
        show_plan(page, topics="heavy", brokers="1,3", replication="2").click()
        (at,) = admin.list_partition_reassignments()
        assert at == TopicPartition("heavy", 0)
        row = page.get_by_role("region", name="Reassignments in progress").locator("tbody tr")
        assert row.locator("th").inner_text() == "heavy-0"
        assert [row.locator("td").nth(each).inner_text() for each in (0, 1)] == ["1, 2", "1, 3"]
        assert re.match(r"\d+%", row.locator("td").nth(2).inner_text())
        overview = browser.open("/topics/heavy/partitions/0")
        assert "out of sync" in overview.get_by_role("region", name="Followers").inner_text()
        row.locator("summary").click()
        row.locator("button").click()
        assert "Cancelled the move of heavy-0." in page.locator("[role=status]").inner_text()
        assert admin.list_partition_reassignments() == {}
        assert replicas_of(admin, "heavy") == {frozenset({1, 2})}


# --- with users ---


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"delegation.token.secret.key": "only-of-this-test"}
    with secured_broker(tmp_path_factory.mktemp("secured"), settings) as broker:
        yield broker


@pytest.fixture
def signed_in(chromium: Any, secured: SecuredBroker, tmp_path: Path) -> Iterator[Any]:
    file = tmp_path / "client.properties"
    own = {name: text for name, text in secured.settings("admin").items() if name != "sasl.jaas.config"}
    file.write_text("".join(f"{name}={text}\n" for name, text in own.items()))
    with (
        running_console(secured.bootstrap, before=["--command-config", str(file)]) as console,
        browsing(chromium, console.url, None) as browser,
    ):
        page = browser.open("/access")
        page.fill("#field-user", "admin")
        page.fill("#field-password", USERS["admin"])
        page.click("text=Sign in >> nth=-1")
        until(page, "location.pathname === '/access'")
        yield page


@pytest.fixture(scope="module")
def owner(secured: SecuredBroker) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": secured.bootstrap, **secured.settings("admin")}) as admin:
        yield admin


def test_rules_users_quotas_and_tokens_by_clicking(signed_in: Any, owner: Admin) -> None:
    page = signed_in
    before = set(owner.describe_acls())
    said = send(page, "/access/add", principal="User:alice", operation="READ", resource="orders")
    assert "Added: ALLOW READ to User:alice" in said
    (made,) = set(owner.describe_acls()) - before
    assert made.rule.principal == "User:alice"
    row = page.locator("tr", has_text="orders").locator("form[action^='/access/remove']")
    row.locator("xpath=ancestor::details").locator("summary").click()
    row.locator("button").click()
    assert "Removed: ALLOW READ" in page.locator("[role=status]").inner_text()
    assert set(owner.describe_acls()) == before

    page.click("nav.tabs >> text=Users")
    fields = {"user": "carol", "mechanism": "SCRAM-SHA-512", "password": "a long one", "again": "a long one"}
    send(page, "/access/users/add", **fields)
    assert "carol" in {each.name for each in owner.describe_user_scram_credentials()}
    remove = page.locator("tr", has_text="carol").locator("form[action^='/access/users/remove']")
    remove.locator("xpath=ancestor::details").locator("summary").click()
    remove.locator("button").click()
    page.wait_for_load_state()
    assert "carol" not in {each.name for each in owner.describe_user_scram_credentials()}

    page.click("nav.tabs >> text=Quotas")
    said = send(page, "/access/quotas/set", user="alice", key="producer_byte_rate", value="1048576")
    assert "producer_byte_rate of user alice is 1,048,576 now." in said
    (quota,) = owner.describe_client_quotas({})
    assert dict(quota.entity) == {"user": "alice"}
    send(page, "/access/quotas/remove")
    assert owner.describe_client_quotas({}) == []

    page.click("nav.tabs >> text=Tokens")
    send(page, "/access/tokens/create", hours="2")
    (token,) = owner.describe_delegation_tokens()
    assert token.password in page.content()
    page.click("nav.tabs >> text=Tokens")
    assert f"Renewed token {token.token_id}." in send(page, "/access/tokens/renew")
    assert f"Token {token.token_id} has expired." in send(page, "/access/tokens/expire")
    assert owner.describe_delegation_tokens() == []
    page.click("text=Sign out")
    assert "Signed out." in page.locator("[role=status]").inner_text()
