"""Pages and API of the console over HTTP, compared with what an admin client says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.offset_numbers import LATEST
from tests.scenario.console.conftest import HOSTILE, ORDERS, partitions
from tests.support.broker import BarnabasBroker, running
from tests.support.console import RunningConsole, form_token, running_console, submit, words
from tests.support.waiting import eventually


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.client() as client:
        yield client


def test_the_overview_says_what_an_admin_client_says(client: httpx.Client, admin: Admin) -> None:
    found = client.get("/api/overview").json()
    cluster = admin.describe_cluster()
    topics = admin.list_topics()
    assert found["cluster_id"] == cluster.cluster_id
    assert found["controller_id"] == cluster.controller_id
    assert [each["broker_id"] for each in found["brokers"]] == [each.broker_id for each in cluster.brokers]
    assert found["topics"] == len(topics)
    assert (found["under_replicated"], found["offline"]) == (0, 0)
    page = words(client.get("/"))
    assert f"Topics {len(topics)}" in page
    assert cluster.cluster_id in page


def test_topics_are_searched_sorted_and_paged(client: httpx.Client) -> None:
    first = client.get("/topics")
    assert "1 to 50 of 63" in words(first)
    second = client.get("/topics?offset=50")
    assert "51 to 63 of 63" in words(second)
    found = client.get("/topics?search=ORD", headers={"hx-request": "true"})
    assert ">orders</a>" in found.text
    assert "service-01" not in found.text
    assert "<html" not in found.text
    by_records = client.get("/api/topics?sort=records&order=desc&limit=2").json()
    assert by_records["rows"][0]["name"] == "orders"
    assert by_records["rows"][0]["records"] == ORDERS
    assert client.get("/topics?sort=colour").status_code == 400
    assert client.get("/topics?offset=many").status_code == 400


def test_a_topic_its_partitions_groups_and_settings(client: httpx.Client, admin: Admin) -> None:
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    found = client.get("/api/topics/orders").json()
    assert {each["partition"]: each["end_offset"] for each in found["partitions"]} == {
        at.partition: end for at, end in ends.items()
    }
    page = words(client.get("/topics/orders"))
    assert all(f"{end}" in page for end in ends.values())
    assert "billing" in words(client.get("/topics/orders/groups"))
    settings = words(client.get("/topics/orders/settings"))
    assert "retention.ms" in settings
    assert "86400000 1 d this topic" in settings
    assert "9223372036854775807 no limit built in" in settings
    assert "static-broker" not in settings
    form = client.get("/topics/orders/settings?name=retention.ms").text
    assert 'value="86400000"' in form
    missing = client.get("/topics/missing")
    assert missing.status_code == 404
    assert "there is no topic missing" in words(missing)


def test_a_topic_is_created_changed_and_deleted(client: httpx.Client, admin: Admin) -> None:
    made = submit(
        client, "/new-topic", "/new-topic", name="made-here", partitions="2", settings="retention.ms=60000"
    )
    assert "Created topic made-here." in words(made)
    assert len(admin.describe_topics(["made-here"])["made-here"].partitions) == 2
    more = submit(client, "/topics/made-here/manage", "/topics/made-here/partitions", total="5")
    assert "has 5 partitions now" in words(more)
    changed = submit(
        client, "/topics/made-here/settings", "/topics/made-here/settings", name="retention.ms", value="70000"
    )
    assert "retention.ms is 70000 now." in words(changed)
    resource = (ResourceType.TOPIC, "made-here")
    (setting,) = admin.describe_configs([resource], ["retention.ms"])[resource]
    assert setting.value == "70000"
    wrong = submit(client, "/topics/made-here/manage", "/topics/made-here/delete", confirm="made")
    assert wrong.status_code == 400
    assert "made-here" in {each.name for each in admin.list_topics()}
    gone = submit(client, "/topics/made-here/manage", "/topics/made-here/delete", confirm="made-here")
    assert "Deleted topic made-here." in words(gone)
    with pytest.raises(UnknownTopicOrPartition):
        admin.describe_topics(["made-here"])
    refused = submit(client, "/new-topic", "/new-topic", name="no spaces")
    assert refused.status_code == 409


def test_a_topic_may_have_the_name_of_a_page(client: httpx.Client, admin: Admin) -> None:
    admin.create_topics([NewTopic(name, 1) for name in ("new", "messages")])
    for name in ("new", "messages"):
        assert f"Topics {name} Produce" in words(client.get(f"/topics/{name}"))
    admin.delete_topics(["new", "messages"])


def test_a_download_that_cannot_be_answered_is_refused_in_words(client: httpx.Client) -> None:
    refused = client.get("/topics/orders/messages/download?partition=9")
    assert refused.status_code == 400
    assert "orders has the partitions 0 to 2" in words(refused)
    assert "content-disposition" not in refused.headers
    whole = client.get("/topics/orders/messages/download?start=oldest&partition=0")
    assert whole.headers["content-disposition"].startswith("attachment")
    assert [json.loads(line)["offset"] for line in whole.text.splitlines()][:3] == [0, 1, 2]


def test_statistics_of_records(client: httpx.Client, admin: Admin) -> None:
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    found = client.get("/api/topics/orders/statistics").json()
    assert (found["records"], found["is_complete"]) == (ORDERS, True)
    assert found["distinct_keys"] == 7
    assert [tuple(each) for each in found["by_partition"]] == [
        (at.partition, end) for at, end in ends.items()
    ]
    assert {each["key"] for each in found["top_keys"]} == {f"c-{number}" for number in range(7)}
    page = words(client.get("/topics/orders/statistics"))
    assert f"{ORDERS} records read" in page
    assert "all that there are" in page
    few = client.get("/api/topics/hostile/statistics?records=3").json()
    assert few["values"]["most"] == 10 << 20
    assert client.get("/topics/orders/statistics?partition=9").status_code == 400
    assert "There are no records here." in words(client.get("/topics/service-01/statistics"))


def test_messages_by_offset_time_and_filter(client: httpx.Client) -> None:
    newest = client.get("/api/topics/orders/messages?limit=5").json()["rows"]
    assert len(newest) == 5
    assert sorted(newest, key=lambda row: -row["timestamp_ms"]) == newest
    value = json.loads(newest[0]["value"]["text"])
    assert value["customer"].startswith("c-")
    found = client.get(
        "/api/topics/orders/messages", params={"filter": "value.amount > 140", "limit": 100}
    ).json()
    amounts = [json.loads(row["value"]["text"])["amount"] for row in found["rows"]]
    assert sorted(amounts) == [number / 2 for number in range(281, ORDERS)]
    from_offset = client.get("/api/topics/orders/messages?start=offset&offset=7&partition=0&limit=3").json()
    assert [row["offset"] for row in from_offset["rows"]] == [7, 8, 9]
    oldest = client.get("/api/topics/orders/messages?start=oldest&partition=1&limit=2").json()
    assert [row["offset"] for row in oldest["rows"]] == [0, 1]
    late = client.get("/api/topics/orders/messages?start=time&time=2099-01-01T00:00").json()
    assert late["rows"] == []
    traced = client.get("/api/topics/orders/messages", params={"filter": 'header.trace == "0010"'}).json()
    assert [json.loads(row["value"]["text"])["id"] for row in traced["rows"]] == [16]
    assert client.get("/topics/orders/messages?filter=value.a+%3E%3E").status_code == 200
    assert "does not fit there" in words(client.get("/topics/orders/messages?filter=value.a+%3E%3E+1"))
    assert client.get("/api/topics/orders/messages?partition=77").status_code == 400


def test_pages_of_messages_show_each_record_once(client: httpx.Client) -> None:
    for start in ("newest", "oldest"):
        seen: list[tuple[int, int]] = []
        at = ""
        for _ in range(40):
            page = client.get(f"/api/topics/orders/messages?start={start}&limit=37&at={at}").json()
            seen += [(row["partition"], row["offset"]) for row in page["rows"]]
            at = page["at"]
            if page["is_complete"]:
                break
        assert len(seen) == ORDERS
        assert len(set(seen)) == ORDERS


def test_the_link_to_older_records_shows_the_same_to_everybody(client: httpx.Client) -> None:
    page = client.get("/topics/orders/messages?limit=10")
    older = re.search(r'href="([^"]+)"[^>]*id="further"', page.text)
    assert older is not None
    link = unescape(older[1])
    first, second = client.get(link), client.get(link)
    rows = re.findall(r'/topics/orders/records/(\d+/\d+)"', first.text)
    assert len(rows) == 10
    assert rows == re.findall(r'/topics/orders/records/(\d+/\d+)"', second.text)


def test_one_record_whole_and_its_bytes(client: httpx.Client) -> None:
    page = client.get("/topics/orders/records/0/3")
    assert "&quot;amount&quot;" in page.text
    raw = client.get("/topics/orders/records/0/3/value")
    assert raw.headers["content-type"] == "application/octet-stream"
    assert raw.headers["content-disposition"].startswith("attachment")
    assert json.loads(raw.content)["id"] >= 0
    assert client.get("/topics/orders/records/0/99999999").status_code == 404
    assert client.get("/topics/orders/records/9/0").status_code in (404, 503)
    lines = client.get("/topics/orders/messages/download?limit=5").text.splitlines()
    assert len(lines) == ORDERS
    assert json.loads(lines[0])["key"].startswith("c-")


def test_a_record_is_produced(client: httpx.Client, admin: Admin) -> None:
    at = TopicPartition("short-lived", 0)
    before = admin.list_offsets({at: LATEST})[at]
    done = submit(
        client,
        "/topics/short-lived/produce",
        "/topics/short-lived/produce",
        key="k",
        value='{"a":\r\n 1}',
        value_as="json",
        headers="trace: 7",
    )
    assert f"Written to partition 0 at offset {before}." in words(done)
    shown = client.get(f"/api/topics/short-lived/records/0/{before}").json()
    assert shown["key"]["text"] == "k"
    assert json.loads(shown["value"]["text"]) == {"a": 1}
    assert shown["headers"] == [["trace", "7"]]
    bad = submit(
        client, "/topics/short-lived/produce", "/topics/short-lived/produce", value="{", value_as="json"
    )
    assert bad.status_code == 400
    assert admin.list_offsets({at: LATEST})[at] == before + 1
    cleared = submit(
        client, "/topics/short-lived/manage", "/topics/short-lived/records/delete", confirm="short-lived"
    )
    assert "Deleted records" in words(cleared)
    assert client.get("/api/topics/short-lived/messages").json()["rows"] == []


def test_groups_with_lag_in_records_and_time(client: httpx.Client, admin: Admin) -> None:
    committed = admin.list_group_offsets("billing")
    ends = admin.list_offsets(dict.fromkeys(partitions(), LATEST))
    found = client.get("/api/group?id=billing").json()
    assert {(each["topic"], each["partition"]): each["committed"] for each in found["offsets"]} == {
        (at.topic, at.partition): offset for at, offset in committed.items()
    }
    assert found["row"]["lag_records"] == sum(ends[at] - offset for at, offset in committed.items())
    behind = [each for each in found["offsets"] if each["lag_records"]]
    assert behind
    assert all(each["lag_ms"] >= 0 for each in behind)
    assert "billing" in words(client.get("/groups"))
    assert client.get("/group?id=missing").status_code == 404
    assert client.get("/group").status_code == 400


def test_a_reset_is_shown_before_it_is_made(client: httpx.Client, admin: Admin) -> None:
    before = admin.list_group_offsets("billing")
    token = form_token(client.get("/group/reset?id=billing"))
    preview = client.post("/group/reset/preview?id=billing", data={"form_token": token, "to": "earliest"})
    assert f"{sum(before.values()):,} records again" in words(preview)
    assert admin.list_group_offsets("billing") == before
    targets = re.findall(r'name="target" value="([^"]+)"', preview.text)
    assert sorted(targets) == [f"orders:{number}=0" for number in range(3)]
    done = client.post(
        "/group/reset?id=billing", data={"form_token": token, "target": targets}, follow_redirects=True
    )
    assert "Reset 3 partitions of billing." in words(done)
    assert admin.list_group_offsets("billing") == dict.fromkeys(partitions(), 0)
    for to, number in (("shift", "10"), ("offset", "5"), ("latest", "")):
        data = {"form_token": token, "to": to, "number": number, "partitions": "0"}
        assert client.post("/group/reset/preview?id=billing", data=data).status_code == 200
    bad = client.post("/group/reset/preview?id=billing", data={"form_token": token, "to": "moon"})
    assert bad.status_code == 400


def test_a_group_of_any_name_is_deleted(client: httpx.Client, admin: Admin) -> None:
    name = 'odd/"group" <b>&'
    admin.alter_group_offsets(name, {TopicPartition("orders", 0): 1})
    path = f"/group?id={quote(name, safe='')}"
    page = client.get(path)
    assert page.status_code == 200
    assert "<b>&amp;" not in page.text
    gone = submit(client, path, f"/group/delete?id={quote(name, safe='')}", confirm=name)
    assert gone.status_code == 200
    assert name not in {each.group_id for each in admin.list_groups()}


def test_the_picture_of_a_log(client: httpx.Client, admin: Admin) -> None:
    end = admin.list_offsets({TopicPartition("orders", 0): LATEST})[TopicPartition("orders", 0)]
    found = client.get("/api/topics/orders/partitions/0").json()
    assert found["high_watermark"] == end
    page = client.get("/topics/orders/partitions/0")
    assert "<svg" in page.text
    assert f"high watermark {end:,}" in page.text
    assert client.get("/topics/orders/partitions/9").status_code == 404


def test_hostile_records_are_text(client: httpx.Client) -> None:
    page = client.get("/topics/hostile/messages")
    assert page.status_code == 200
    assert len(page.content) < 300_000
    for number in range(len(HOSTILE) + 1):
        shown = client.get(f"/topics/hostile/records/0/{number}")
        assert shown.status_code == 200
        assert len(shown.content) < 3_000_000
        page_tags = set(re.findall(r"<([a-z][a-z-]*)", shown.text))
        assert not page_tags & {"svg", "hx-partial", "b"}
        assert shown.text.count("<script") == 4
        assert "onerror=" not in re.sub(r"&lt;.*?&gt;", "", shown.text)
    lines = client.get("/topics/hostile/messages/download").text.splitlines()
    assert len(lines) == len(HOSTILE) + 1
    names = [name for line in lines for name, _ in json.loads(line)["headers"]]
    assert any("\udcff" in name for name in names)
    rows = client.get("/api/topics/hostile/messages").json()["rows"]
    assert '{\n  "half of a pair": "\\ud800"\n}' in [row["value"]["text"] for row in rows]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/orders/messages?limit=²", 200),  # the page says what is wrong
        ("/topics/orders/messages?start=time&time=²", 200),
        ("/api/topics/orders/messages?limit=²", 400),
        (f"/api/topics/orders/records/0/{2**63}", 404),
        (f"/api/topics/orders/records/0/{'9' * 5_000}", 404),
        (f"/api/topics/orders/records/{2**31}/0", 404),
        (f"/topics/orders/partitions/{2**31}", 404),
        (f"/cluster/brokers/{2**31}", 404),
    ],
)
def test_numbers_that_are_none_are_the_visitors_fault(client: httpx.Client, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_the_api_describes_itself(client: httpx.Client) -> None:
    found = client.get("/api/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    for path in ("/api/overview", "/api/topics", "/api/groups"):
        answer = client.get(path).json()
        schema = found["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        assert set(answer) == set(found["components"]["schemas"][name]["properties"])
    assert "/api/topics" in client.get("/api").text
    assert client.get("/api/topics/missing").status_code == 404
    assert client.get("/api/nothing").status_code == 404


def test_a_console_without_a_broker_names_its_address_until_one_answers(tmp_path: Path) -> None:
    """Each page asked it for half a minute."""
    broker = BarnabasBroker(tmp_path / "data")
    with running_console(broker.bootstrap) as console, console.client() as client:
        page, answer = client.get("/topics"), client.get("/api/overview")
        assert (page.status_code, answer.status_code) == (503, 503)
        assert f"No broker answers at {broker.bootstrap} yet." in words(page)
        assert answer.json()["message"] == f"No broker answers at {broker.bootstrap} yet"
        with running(broker):
            eventually(lambda: client.get("/topics").status_code == 200, "the console finds the broker")
