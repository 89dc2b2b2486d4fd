"""What the pages show in a real browser, row by row, compared with what an admin client says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.admin.topics_and_configs import Setting
from barnabas.client.core.metadata import Topic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.consumer import Consumer
from barnabas.client.sync.producer import Producer
from barnabas.console.html.figures import DASH, number, size
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from tests.scenario.console.conftest import ORDERS, partitions
from tests.scenario.console.test_browser import browser, chromium, console
from tests.support.broker import BarnabasBroker, partition_directory
from tests.support.browser import Browser, until

__all__ = ["browser", "chromium", "console"]
pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
NINE_MS = 1_795_165_200_000
"""2026-11-20T09:00 in UTC."""


def rows_of(page: Any, name: str) -> list[list[str]]:
    """Texts of the cells of a table, by its name for screen readers."""
    table = page.get_by_role("region", name=name, exact=True).locator("tbody").first
    found: list[list[str]] = table.evaluate(
        "each => [...each.rows].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return found


def facts_of(page: Any) -> dict[str, str]:
    found: dict[str, str] = page.locator("dl.facts").first.evaluate(
        "each => Object.fromEntries([...each.children].map("
        "row => [row.children[0].innerText, row.children[1].innerText]))"
    )
    return found


def tiles_of(page: Any) -> dict[str, list[str]]:
    found: list[list[str]] = page.locator(".tile").evaluate_all(
        "tiles => tiles.map(each => [...each.children].map(part => part.innerText.trim()))"
    )
    return {name: rest for name, *rest in found}


def records_of(admin: Admin, topics: list[Topic]) -> dict[str, int]:
    places = [TopicPartition(each.name, part.index) for each in topics for part in each.partitions]
    firsts = admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(places, LATEST))
    found = dict.fromkeys((each.name for each in topics), 0)
    for at in places:
        found[at.topic] += ends[at] - firsts[at]
    return found


def test_the_overview_counts_what_an_admin_client_counts(browser: Browser, admin: Admin) -> None:
    tiles = tiles_of(browser.open("/"))
    cluster = admin.describe_cluster()
    topics = admin.list_topics()
    everything = [part for each in admin.list_topics(include_internal=True) for part in each.partitions]
    assert tiles["Brokers"] == [str(len(cluster.brokers)), f"controller is {cluster.controller_id}"]
    assert tiles["Topics"] == [str(len(topics)), f"{len(everything)} partitions"]
    out_of_sync = sum(len(each.isr) < len(each.replicas) for each in everything)
    assert tiles["Under-replicated"][0] == str(out_of_sync)
    assert tiles["Offline"][0] == str(sum(each.leader_id < 0 for each in everything))
    groups = [each.group_id for each in admin.list_groups()]
    assert tiles["Groups"][0] == str(len(groups))
    sizes = [replica.size_bytes for dirs in admin.describe_log_dirs().values() for each in dirs.values()
             for replica in each.replicas.values()]  # fmt: skip
    assert tiles["On disk"][0] == size(sum(sizes))


def test_topics_are_put_in_order_and_leafed_through_by_clicking(browser: Browser, admin: Admin) -> None:
    topics = admin.list_topics()
    names = sorted(each.name for each in topics)
    records = records_of(admin, topics)
    page = browser.open("/topics")
    assert [each[0] for each in rows_of(page, "Topics")] == names[:50]
    page.click("nav.pager >> text=Next")
    until(page, "location.search.includes('offset=50')")
    assert [each[0] for each in rows_of(page, "Topics")] == names[50:]
    page.click("nav.pager >> text=Previous")
    page.click("#topics thead >> text=Records")
    until(page, "location.search.includes('sort=records')")
    shown = rows_of(page, "Topics")
    most = sorted(records.values(), reverse=True)[: len(shown)]
    assert [each[4] for each in shown] == [f"{each:,}" for each in most]
    assert shown[0][0] == max(records, key=lambda name: records[name])
    page.click("#topics thead >> text=Partitions")
    until(page, "location.search.includes('sort=partitions')")
    assert rows_of(page, "Topics")[0][:2] == ["orders", "3"]


def test_partitions_have_their_leaders_offsets_and_sizes(browser: Browser, admin: Admin) -> None:
    page = browser.open("/topics")
    page.click("text=orders >> nth=0")
    topic = admin.describe_topics(["orders"])["orders"]
    firsts = admin.list_offsets(dict.fromkeys(partitions(), EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    (directories,) = admin.describe_log_dirs().values()
    replicas = {at: each for found in directories.values() for at, each in found.replicas.items()}
    expected = []
    for part in topic.partitions:
        at = TopicPartition("orders", part.index)
        assert set(part.isr) == set(part.replicas), "marked otherwise"
        expected.append(
            [
                str(part.index),
                str(part.leader_id),
                ", ".join(map(str, part.replicas)),
                f"{firsts[at]:,}",
                f"{ends[at]:,}",
                f"{ends[at] - firsts[at]:,}",
                size(replicas[at].size_bytes),
                str(part.leader_epoch),
                "show",
            ]
        )
    assert rows_of(page, "Partitions") == expected
    facts = facts_of(page)
    assert facts["Records"] == f"{ORDERS:,}"
    assert facts["Health"] == "in sync"
    assert facts["Topic id"] == str(topic.topic_id)


ORIGINS = {
    "topic": "this topic",
    "default": "built in",
    "static-broker": "the broker's properties",
    "dynamic-broker": "this broker, at run time",
    "dynamic-default-broker": "all brokers, at run time",
}


def settings_on(page: Any, *tables: str) -> dict[str, tuple[str, str]]:
    """Values and origins of the settings in these tables, by name."""
    found = {}
    for table in tables:
        for name, value, origin in rows_of(page, table):
            first, _, meaning = name.partition("\n")
            assert meaning.strip(), f"{first} has no meaning"
            found[first] = (value.split("\n")[0], origin.removesuffix("read-only").strip())
    return found


def as_shown(found: list[Setting]) -> dict[str, tuple[str, str]]:
    return {
        each.name: ("secret" if each.is_sensitive else each.value or DASH, ORIGINS[each.source])
        for each in found
    }


def test_settings_have_their_meaning_and_origin(browser: Browser, admin: Admin) -> None:
    page = browser.open("/topics/orders")
    page.click("nav.tabs >> text=Settings")
    resource = (ResourceType.TOPIC, "orders")
    told = as_shown(admin.describe_configs([resource])[resource])
    assert told["retention.ms"] == ("86400000", "this topic")
    assert settings_on(page, "Settings of this topic", "Settings of the brokers") == told
    page.click("a:has-text('segment.bytes') >> nth=0")
    assert page.locator("#field-value").input_value() == "4096"

    (broker,) = admin.describe_cluster().brokers
    resource = (ResourceType.BROKER, str(broker.broker_id))
    page = browser.open("/cluster")
    page.click(f"text={broker.broker_id} >> nth=0")
    shown = settings_on(page, "Settings of this broker", "Defaults")
    assert shown == as_shown(admin.describe_configs([resource])[resource])


def test_groups_of_a_topic_have_their_lag(browser: Browser, admin: Admin) -> None:
    admin.alter_group_offsets("nearly-there", dict.fromkeys(partitions(), 40))
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    lags = {
        name: sum(max(ends[at] - offset, 0) for at, offset in admin.list_group_offsets(name).items())
        for name in ("billing", "nearly-there")
    }
    page = browser.open("/topics/orders")
    page.click("nav.tabs >> text=Groups")
    shown = {name: lag for name, _, _, _, _, lag, _ in rows_of(page, "Groups")}
    assert shown == {name: f"{lag:,}" for name, lag in lags.items()}
    page = browser.open("/groups")
    page.click("thead >> text=/^Lag$/")
    until(page, "location.search.includes('sort=lag')")
    states = {each.group_id: each.state for each in admin.list_groups()}
    found = rows_of(page, "Groups")
    assert {each[0]: each[1] for each in found} == states
    assert [each[0] for each in found] == sorted(lags, key=lambda name: -lags[name])
    page.keyboard.press("/")
    page.keyboard.type("nearly")
    until(page, "document.querySelectorAll('#groups tbody tr').length === 1")
    page.click("#groups tbody a")
    assert facts_of(page)["Lag"] == f"{lags['nearly-there']:,} records"
    admin.delete_groups(["nearly-there"])


def test_members_have_their_assignment(browser: Browser, broker: BarnabasBroker, admin: Admin) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "a-reader"}
    with Consumer(settings, group="reading", topics=["orders"]) as consumer:
        while len(consumer.assignment) < 3:
            consumer.poll(timeout_ms=200)
        (member,) = admin.describe_groups(["reading"])["reading"].members
        assert len(member.partitions) == 3
        page = browser.open("/groups")
        page.click("#groups tbody >> text=reading")
        until(page, "document.querySelector('#group') !== null")
        assert rows_of(page, "Members") == [
            [member.member_id, "a-reader", member.host, "orders: 0, 1, 2"],
        ]
        facts = facts_of(page)
        assert (facts["State"], facts["Members"]) == ("Stable", "1")
        assert {each[5] for each in rows_of(page, "Offsets")} == {"a-reader"}
        page.click("text=Reset offsets")
        assert "Stop them first" in page.locator("main").inner_text()
    page.goto(page.url.replace("/group/reset", "/group"))
    until(page, "document.querySelector('#group').innerText.includes('no members now')")
    admin.delete_groups(["reading"])


@pytest.fixture(scope="module")
def timed(broker: BarnabasBroker, admin: Admin) -> Iterator[TopicPartition]:
    """A record at each hour from nine o'clock on."""
    admin.create_topics([NewTopic("timed", 1)])
    with Producer(broker.bootstrap) as producer:
        for hour in range(6):
            producer.publish("timed", b"at %d \xc3\xa9" % hour, timestamp_ms=NINE_MS + hour * HOUR_MS)
    yield TopicPartition("timed", 0)
    admin.delete_topics(["timed"])


def places_on(page: Any) -> list[str]:
    return [each[0] for each in rows_of(page, "Messages")]


def test_messages_start_at_an_offset_a_time_or_the_oldest(
    browser: Browser, admin: Admin, timed: TopicPartition
) -> None:
    page = browser.open("/topics/orders/messages")
    end = admin.list_offsets({TopicPartition("orders", 1): LATEST})[TopicPartition("orders", 1)]
    page.select_option("#field-start", "offset")
    page.fill("#field-offset", "7")
    page.select_option("#field-partition", "1")
    page.click("button:text-is('Show')")
    assert places_on(page) == [f"1 · {offset}" for offset in range(7, min(57, end))]
    page.select_option("#field-start", "oldest")
    page.select_option("#field-partition", "2")
    page.click("button:text-is('Show')")
    assert places_on(page)[:2] == ["2 · 0", "2 · 1"]
    page.select_option("#field-partition", "0")
    page.select_option("#field-start", "newest")
    page.click("button:text-is('Show')")
    end = admin.list_offsets({TopicPartition("orders", 0): LATEST})[TopicPartition("orders", 0)]
    assert places_on(page)[0] == f"0 · {end - 1}"

    page = browser.open("/topics/timed/messages")
    page.select_option("#field-start", "time")
    page.fill("#field-time", "2026-11-20T11:30:00")
    page.click("button:text-is('Show')")
    at = NINE_MS + 5 * HOUR_MS // 2
    first = admin.list_offsets({timed: at})[timed]
    assert first == 3
    assert places_on(page) == [f"0 · {offset}" for offset in range(first, 6)]
    assert rows_of(page, "Messages")[0][1] == "2026-11-20 12:00:00.000"
    other = browser.open(page.url.partition("/topics")[2].join(("/topics", "")))
    assert places_on(other) == places_on(page), "the address is the link to what is seen"


def test_a_value_is_shown_in_other_formats(browser: Browser, timed: TopicPartition) -> None:
    page = browser.open("/topics/timed/messages")
    page.select_option("#field-value", "hex")
    page.click("button:text-is('Show')")
    assert "61 74 20 35 20 c3 a9" in rows_of(page, "Messages")[0][3]
    page = browser.open("/topics/timed/records/0/5")
    value = page.locator("pre.record-value").first
    assert value.inner_text() == "at 5 é"
    for kind, text in (("base64", "YXQgNSDDqQ=="), ("hex", "61 74 20 35 20 c3 a9"), ("text", "at 5 é")):
        page.click(f"section:has(h2:text-is('Value')) >> a:text-is('{kind}')")
        assert text in page.locator("pre.record-value").first.inner_text()
        ground = "each => getComputedStyle(each).backgroundColor"
        chosen = page.locator("section:has(h2:text-is('Value')) a[aria-current]")
        assert chosen.inner_text() == kind
        beside = page.locator("section:has(h2:text-is('Value')) a:not([aria-current])").first
        assert chosen.evaluate(ground) != beside.evaluate(ground)
    page.click("text=Before")
    assert facts_of(page)["Offset"] == "4"
    with page.expect_download() as waiting:
        page.click("section:has(h2:text-is('Value')) >> a:text-is('Download')")
    assert waiting.value.path().read_bytes() == "at 4 é".encode()


def test_records_are_found_by_a_header(browser: Browser) -> None:
    page = browser.open("/topics/orders/messages")
    page.fill("#field-filter", 'header.trace == "0010"')
    page.click("button:text-is('Show')")
    page.click("#messages tbody a")
    assert json.loads(page.locator("pre.record-value").nth(1).inner_text())["id"] == 0x10
    assert rows_of(page, "Headers") == [["trace", "0010", "4 B"]]


def test_statistics_count_what_is_there(browser: Browser, admin: Admin) -> None:
    page = browser.open("/topics/orders")
    page.click("nav.tabs >> text=Statistics")
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    shown = rows_of(page, "Records by partition")
    assert [(each[0], each[1]) for each in shown] == [
        (str(at.partition), number(end)) for at, end in ends.items()
    ]
    assert facts_of(page)["Different keys"] == "7"
    page.select_option("#field-partition", "1")
    page.click("button:text-is('Read')")
    assert f"{ends[TopicPartition('orders', 1)]:,} records read" in page.locator("main").inner_text()


def test_log_directories_are_those_of_the_brokers(browser: Browser, admin: Admin) -> None:
    shown = rows_of(browser.open("/cluster"), "Log directories")
    expected = [
        [
            str(broker_id),
            path,
            "online" if each.error is None else each.error.message,
            f"{len(each.replicas):,}",
            size(sum(replica.size_bytes for replica in each.replicas.values())),
        ]
        for broker_id, directories in admin.describe_log_dirs().items()
        for path, each in directories.items()
    ]
    assert [each[:5] for each in shown] == expected


def test_the_picture_of_a_log_has_its_files(browser: Browser, broker: BarnabasBroker, admin: Admin) -> None:
    page = browser.open("/topics/orders/partitions/1")
    files = sorted(partition_directory(broker, "orders", 1).glob("*.log"), reverse=True)
    assert len(files) > 1
    shown = rows_of(page, "Segments, the newest first")
    assert [each[0].split()[0] for each in shown] == [each.name for each in files]
    assert [each[2] for each in shown] == [size(each.stat().st_size) for each in files]
    assert page.locator("svg.chart .segment").count() == len(files)
    at = TopicPartition("orders", 1)
    committed = admin.list_group_offsets("billing")[at]
    end = admin.list_offsets({at: LATEST})[at]
    assert rows_of(page, "Groups that read this partition") == [
        ["billing", f"{committed:,}", f"{end - committed:,}"]
    ]


def test_the_picture_of_a_log_is_live(browser: Browser, broker: BarnabasBroker, admin: Admin) -> None:
    admin.create_topics([NewTopic("growing", 1)])
    at = TopicPartition("growing", 0)
    page = browser.open("/topics/growing/partitions/0")
    until(page, "document.querySelector('.page-head .live').textContent === 'live'")
    assert facts_of(page)["Log end offset"].startswith("0")
    with Producer(broker.bootstrap) as producer:
        for number_ in range(7):
            producer.send(at.topic, str(number_).encode(), partition=0)
        producer.flush()
    end = admin.list_offsets({at: LATEST})[at]
    assert end == 7
    until(page, "() => document.querySelector('#content').innerText.includes('log end 7')")
    shown = facts_of(page)
    for name in ("Log end offset", "High watermark", "Last stable offset"):
        assert shown[name].startswith(str(end)), name
    admin.delete_topics([at.topic])


def test_clients_are_shown_with_what_they_report(
    browser: Browser, broker: BarnabasBroker, admin: Admin
) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    page = browser.open("/clients")
    assert "No client has reported yet" in page.locator("main").inner_text()
    subscription: dict[str, str | None] = {"metrics": "*", "interval.ms": "100", "match": "client_id=telling"}
    admin.alter_configs({(ResourceType.CLIENT_METRICS, "all"): subscription})
    client = confluent.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "telling"})

    def rows() -> int:
        client.produce("service-40", b"x")
        client.poll(0.1)
        page.reload()
        return int(page.locator("summary:text-matches('^[1-9][0-9]* metrics$')").count())

    for _ in range(300):
        if rows():
            break
    client.flush()
    page.click("summary:text-matches('metrics$')")
    (row,) = (each for each in rows_of(page, "Clients") if each[0] == "telling")
    assert row[1].startswith("confluent-kafka-python")
    assert row[3] == "127.0.0.1"
    names = {each[0] for each in rows_of(page, "Metrics of telling")}
    assert names
    assert all(re.match(r"org\.apache\.kafka\.", each) for each in names)


def test_a_download_is_produced_again_by_clicking(browser: Browser, admin: Admin) -> None:
    admin.create_topics([NewTopic("again", 3)])
    page = browser.open('/topics/orders/messages?filter=key == "c-3"')
    with page.expect_download() as waiting:
        page.click("text=Download")
    lines = waiting.value.path().read_text()
    page = browser.open("/topics/again/produce")
    page.click("text=Records as lines of JSON")
    page.fill("#field-lines", lines + '{"valeu": 1}')
    page.click("#produce-lines")
    assert "nothing was written: line" in page.locator("main").inner_text()
    assert all("status of 400" in each for each in browser.complaints)
    browser.complaints.clear()
    page.go_back()
    page.click("text=Records as lines of JSON")
    page.fill("#field-lines", lines)
    page.check("form[action$='produce-lines'] [name=partitions]")
    page.click("#produce-lines")
    count = len(lines.splitlines())
    assert f"Wrote {count} records." in page.locator("[role=status]").inner_text()
    (topic,) = admin.describe_topics(["again"]).values()
    assert records_of(admin, [topic]) == {"again": count}
    told = [json.loads(line) for line in lines.splitlines()]
    shown = {int(place.split(" ")[0]) for place in places_on(page)}
    assert shown == {each["partition"] for each in told}
    page.click("#messages tbody a")
    assert json.loads(page.locator("pre.record-value").nth(1).inner_text())["customer"] == "c-3"
    admin.delete_topics(["again"])
