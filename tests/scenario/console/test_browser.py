"""The console in a real browser (Debian's Chromium): what it shows, and what is done by clicking.

`pytest tests/scenario/console/test_browser.py --screenshots docs/images/console` writes the pictures of the
documentation from the same run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.offset_numbers import LATEST
from tests.scenario.console.conftest import HOSTILE, partitions
from tests.support import browser as browser_support
from tests.support.broker import BarnabasBroker
from tests.support.browser import Browser, browsing, until, violations
from tests.support.console import RunningConsole, running_console

PAGES = (
    "/",
    "/topics",
    "/new-topic",
    "/topics/orders",
    "/topics/orders/messages",
    "/topics/orders/messages?live=true",
    "/topics/orders/records/0/1",
    "/topics/orders/produce",
    "/topics/orders/statistics",
    "/topics/orders/groups",
    "/topics/orders/settings",
    "/topics/orders/manage",
    "/topics/orders/partitions/0",
    "/groups",
    "/group?id=billing",
    "/group/reset?id=billing",
    "/transactions",
    "/clients",
    "/pipelines",
    "/cluster",
    "/cluster/brokers/{broker}",
    "/access",
    "/access/users",
    "/access/quotas",
    "/access/tokens",
    "/api",
    "/nothing",
)
DARK_PAGES = ("/topics", "/topics/orders/messages", "/group?id=billing", "/topics/orders/partitions/0")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def console(broker: BarnabasBroker) -> Iterator[RunningConsole]:
    """A console that asks the broker's memory, as beside `barnabas start`."""
    with running_console(broker.bootstrap, "--broker-directory", str(broker.data_directory)) as console:
        yield console


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser_support.chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any, console: RunningConsole, request: pytest.FixtureRequest) -> Iterator[Browser]:
    with browsing(chromium, console.url, request.config.getoption("--screenshots")) as found:
        yield found


def pages_of(admin: Admin) -> list[str]:
    (broker,) = admin.describe_cluster().brokers
    return [each.format(broker=broker.broker_id) for each in PAGES]


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_every_page_is_accessible(browser: Browser, admin: Admin, is_dark: bool) -> None:
    """axe-core finds nothing."""
    found: dict[str, Any] = {}
    for path in DARK_PAGES if is_dark else pages_of(admin):
        page = browser.open(path, is_dark=is_dark)
        found |= {f"{path}: {each}": nodes for each, nodes in violations(page).items()}
        page.context.close()
    assert found == {}


def test_no_page_is_wider_than_a_phone(browser: Browser, admin: Admin) -> None:
    for path in pages_of(admin):
        page = browser.open(path, is_phone=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        if path == "/topics/orders":
            browser.picture(page, "phone")
        page.context.close()


def test_the_overview_is_live_and_says_what_an_admin_client_says(
    browser: Browser, broker: BarnabasBroker, admin: Admin
) -> None:
    page = browser.open("/")
    shown = page.locator("#overview").inner_text()
    assert admin.describe_cluster().cluster_id in page.locator(".lead").inner_text()
    assert f"Topics\n{len(admin.list_topics())}\n" in shown
    assert f"127.0.0.1:{broker.port}" in shown
    browser.picture(page, "overview")
    with Admin(broker.bootstrap) as other:
        other.create_topics([NewTopic("made-while-looking", 1)])
    more = f"Topics\n{len(admin.list_topics())}\n"
    until(page, "text => document.querySelector('#overview').innerText.includes(text)", arg=more)


def test_a_search_narrows_the_list_while_it_is_typed(browser: Browser) -> None:
    page = browser.open("/topics")
    browser.picture(page, "topics")
    page.keyboard.press("/")
    page.keyboard.type("hostile")
    until(page, "document.querySelectorAll('#topics tbody tr').length === 1")
    assert page.locator("#topics tbody th").inner_text().strip() == "hostile"
    until(page, "location.search.includes('search=hostile')")
    assert page.evaluate("document.activeElement.name") == "search"
    page = browser.open("/topics", is_dark=True)
    browser.picture(page, "topics-dark")


def test_the_theme_is_chosen_and_kept(browser: Browser) -> None:
    page = browser.open("/topics")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    dark = page.evaluate(ground)
    assert light != dark
    page.reload()
    assert page.evaluate(ground) == dark


def test_messages_are_filtered_and_one_is_opened(browser: Browser) -> None:
    page = browser.open("/topics/orders/messages")
    page.fill("#field-filter", 'value.amount > 140 and key == "c-3"')
    page.click("text=Show")
    rows = page.locator("#messages tbody tr")
    assert rows.count() == 3
    browser.picture(page, "messages")
    rows.first.locator("a").click()
    value = json.loads(page.locator("pre.record-value").nth(1).inner_text())
    assert value["customer"] == "c-3"
    browser.picture(page, "record")


def test_a_record_is_produced_by_clicking(browser: Browser, admin: Admin) -> None:
    at = TopicPartition("service-09", 0)
    before = admin.list_offsets({at: LATEST})[at]
    page = browser.open("/topics/service-09/messages")
    page.click("text=Produce")
    page.fill("#field-key", "clicked")
    page.fill("#field-value", '{"by": "hand"}')
    page.select_option("#field-value_as", "json")
    browser.picture(page, "produce")
    page.click("#produce")
    assert f"Written to partition 0 at offset {before}." in page.locator("[role=status]").inner_text()
    assert admin.list_offsets({at: LATEST})[at] == before + 1
    assert page.locator("pre.record-value").first.inner_text() == "clicked"


def test_a_tail_of_a_thousand_records_a_second(browser: Browser, broker: BarnabasBroker) -> None:
    page = browser.open("/topics/service-10/messages?live=true")
    until(page, "document.querySelector('#tail-state').textContent === 'live'")
    stopped = threading.Event()

    def write() -> None:
        with Producer(broker.bootstrap, linger_ms=20) as producer:
            number = 0
            while not stopped.wait(0.1):
                for _ in range(100):
                    number += 1
                    producer.send("service-10", f"value {number}".encode(), key=b"k")
            producer.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(page, "document.querySelectorAll('#tail-rows tr').length >= 150")
        until(page, "/skipped/.test(document.querySelector('#tail-state').textContent)")
        browser.picture(page, "tail")
        page.wait_for_timeout(1_500)
        assert page.evaluate("document.querySelectorAll('#tail-rows tr').length") <= 200
        page.click("#tail-pause")
        page.wait_for_timeout(300)
        first = page.locator("#tail-rows tr").first.inner_text()
        page.wait_for_timeout(800)
        assert page.locator("#tail-rows tr").first.inner_text() == first
        page.click("#tail-pause")
        until(page, "text => document.querySelector('#tail-rows tr').innerText !== text", arg=first)
    finally:
        stopped.set()
        writer.join()


def test_offsets_are_reset_by_clicking(browser: Browser, admin: Admin) -> None:
    before = admin.list_group_offsets("billing")
    page = browser.open("/group?id=billing")
    lag = page.locator("#group").inner_text()
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    assert f"{sum(ends[at] - offset for at, offset in before.items()):,} records" in lag
    browser.picture(page, "group")
    page.click("text=Reset offsets")
    page.select_option("#field-to", "earliest")
    page.click("#preview")
    assert f"{sum(before.values()):,} records again" in page.locator("main").inner_text()
    browser.picture(page, "reset")
    assert admin.list_group_offsets("billing") == before
    page.click("#confirm-reset")
    assert "Reset 3 partitions of billing." in page.locator("[role=status]").inner_text()
    assert admin.list_group_offsets("billing") == dict.fromkeys(partitions(), 0)


def test_the_picture_of_a_log_has_its_numbers(browser: Browser, admin: Admin) -> None:
    at = TopicPartition("orders", 1)
    end = admin.list_offsets({at: LATEST})[at]
    page = browser.open("/topics/orders/partitions/1")
    assert f"{end:,}" in page.locator("svg.chart desc").first.text_content()
    assert page.locator("svg .mark.hw").count() == 1
    browser.picture(page, "log")


def test_a_topic_is_created_and_deleted_by_clicking(browser: Browser, admin: Admin) -> None:
    page = browser.open("/topics")
    page.click("text=New topic")
    page.fill("#field-name", "by-hand")
    page.fill("#field-partitions", "4")
    page.click("text=Create >> nth=-1")
    assert "Created topic by-hand." in page.locator("[role=status]").inner_text()
    assert len(admin.describe_topics(["by-hand"])["by-hand"].partitions) == 4
    page.click("text=Manage")
    page.click("text=Delete this topic …")
    page.locator("form[action$='/topics/by-hand/delete'] input[name=confirm]").fill("by-hand")
    browser.picture(page, "delete")
    page.click("#delete-topic")
    assert "Deleted topic by-hand." in page.locator("[role=status]").inner_text()
    assert "by-hand" not in {each.name for each in admin.list_topics()}


def test_hostile_records_do_nothing(browser: Browser, broker: BarnabasBroker) -> None:
    paths = ["/topics/hostile/messages", *(f"/topics/hostile/records/0/{n}" for n in range(len(HOSTILE) + 1))]
    for path in paths:
        page = browser.open(path)
        _is_unharmed(page)
        page.context.close()
    page = browser.open("/topics/service-11/messages?live=true")
    until(page, "document.querySelector('#tail-state').textContent === 'live'")
    with Producer(broker.bootstrap) as producer:
        for each in HOSTILE:
            producer.send("service-11", each, key=each[:100])
        producer.flush()
    until(page, f"document.querySelectorAll('#tail-rows tr').length === {len(HOSTILE)}")
    _is_unharmed(page)


def _is_unharmed(page: Any) -> None:
    assert "owned" not in page.title()
    assert page.locator("main img, main svg[onload], main script, main b, main iframe").count() == 0
    assert page.locator("form[action*='elsewhere']").count() == 0


def test_a_topic_is_made_like_another_by_clicking(browser: Browser, admin: Admin) -> None:
    page = browser.open("/topics/orders/manage")
    page.click("text=New topic like this one")
    page.fill("#field-name", "orders-again")
    page.click("text=Create >> nth=-1")
    assert "Created topic orders-again." in page.locator("[role=status]").inner_text()
    assert len(admin.describe_topics(["orders-again"])["orders-again"].partitions) == 3
    resource = (ResourceType.TOPIC, "orders-again")
    found = {each.name: each.value for each in admin.describe_configs([resource])[resource]}
    assert (found["retention.ms"], found["segment.bytes"]) == ("86400000", "4096")
    admin.delete_topics(["orders-again"])


def test_live_figures_leave_unfolded_what_was_unfolded(browser: Browser) -> None:
    page = browser.open("/group?id=billing")
    until(page, "document.querySelector('#group svg') !== null")
    page.click("text=The same as a table")
    before = page.locator("#group svg").first.get_attribute("aria-labelledby")
    until(page, "id => document.querySelector('#group svg').getAttribute('aria-labelledby') !== id", before)
    page.wait_for_timeout(100)
    assert page.locator("#group details[open]").count() == 1


def test_the_keyboard_reaches_everything(browser: Browser) -> None:
    page = browser.open("/topics/orders")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    names: set[str] = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        names.add(page.evaluate("document.activeElement.textContent.trim()"))
    assert {"Produce", "Messages", "Settings", "0"} <= names


def test_figures_are_live_also_if_a_script_arrives_late(browser: Browser) -> None:
    """Scripts of a page arrive in any order on a busy machine."""

    def late(route: Any) -> None:
        time.sleep(1)
        route.continue_()

    page = browser.open("/nothing")
    page.route("**/hx-sse.min.js", late)
    page.goto(page.url.replace("/nothing", "/topics/service-12/messages?live=true"))
    until(page, "document.querySelector('#tail-state').textContent === 'live'")


def test_a_page_says_whether_it_is_connected_and_connects_again(browser: Browser) -> None:
    answers = ["abort", "error", "continue"]

    def answer(route: Any) -> None:
        match answers.pop(0) if len(answers) > 1 else answers[0]:
            case "abort":
                route.abort()
            case "error":
                route.fulfill(status=503, content_type="text/html", body="<h1>No broker answers</h1>")
            case _:
                route.continue_()

    page = browser.open("/nothing")
    page.route("**/overview/live", answer)
    page.goto(page.url.replace("/nothing", "/"))
    sign = "document.querySelector('.page-head .live').textContent"
    until(page, f"{sign} === 'not connected'")
    until(page, f"{sign} === 'live'")
    assert answers == ["continue"]
    assert "No broker answers" not in page.locator("main").inner_text()
    assert all("Failed to" in each for each in browser.complaints), "what the two answers were"
    browser.complaints.clear()
