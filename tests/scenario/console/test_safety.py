"""Refusals of the console: other sites, other hosts, forms without a token, changes when read-only."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from tests.support.broker import BarnabasBroker
from tests.support.console import RunningConsole, form_token, running_console, submit, words
from tests.support.secured_broker import USERS, SecuredBroker, secured_broker
from tests.support.waiting import eventually


def test_every_page_has_a_strict_policy(console: RunningConsole) -> None:
    with console.client() as client:
        nonces = set()
        for path in ("/", "/topics", "/topics/orders/messages", "/nothing", "/api/overview"):
            answer = client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            nonces.add(re.findall(r"'nonce-([^']+)'", policy)[0])
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            if "text/html" in answer.headers["content-type"]:
                assert set(re.findall(r'<script[^>]* nonce="([^"]+)"', answer.text)) == {
                    re.findall(r"'nonce-([^']+)'", policy)[0]
                }
                assert not re.search(r'\son\w+="|\sstyle="|<style', answer.text)
                assert not re.search(r'(src|href)="(https?:)?//', answer.text)
        assert len(nonces) == 5
        cookie = client.get("/").request.headers["cookie"]
        assert cookie
    with console.client() as client:
        first = client.get("/").headers["set-cookie"].lower()
        assert "httponly" in first
        assert "samesite=strict" in first


def test_another_host_name_or_origin_is_refused(console: RunningConsole) -> None:
    with console.client() as client:
        assert client.get("/", headers={"host": "attacker.test"}).status_code == 403
        assert client.get("/", headers={"origin": "http://attacker.test"}).status_code == 403


def test_a_form_needs_the_token_of_its_session(console: RunningConsole, admin: Admin) -> None:
    with console.client() as client, console.client() as other:
        token = form_token(client.get("/new-topic"))
        foreign = form_token(other.get("/new-topic"))
        assert token != foreign
        for fields in ({}, {"form_token": ""}, {"form_token": foreign}, {"form_token": token[:-1] + "é"}):
            answer = client.post("/new-topic", data={"name": "forged", **fields})
            assert answer.status_code == 403
        cross_site = client.post(
            "/new-topic",
            data={"name": "forged", "form_token": token},
            headers={"sec-fetch-site": "cross-site"},
        )
        assert cross_site.status_code == 403
        as_json = client.post("/new-topic", json={"name": "forged", "form_token": token})
        assert as_json.status_code == 415
        assert "forged" not in {each.name for each in admin.list_topics()}


@pytest.mark.parametrize(
    "path",
    [
        "/topics?offset=-1&limit=99999999999999999999",
        "/topics/..%2f..%2fetc",
        "/topics/orders/records/0/99999999999999999999999",
        "/topics/orders/messages?at=" + "1-1." * 3_000,
        "/topics/orders/messages?filter=" + "(" * 2_000,
        "/topics/orders/messages?offset=-5&start=offset",
        "/topics/orders/partitions/999999999999",
        "/group?id=" + "x" * 8_000,
        "/group?id=%00",
        "/topics/orders/messages/live?filter=((",
        "/topics/orders/messages/download?filter=((",
        "/topics/orders/messages?live=true&filter=((",
        "/static/0000/console.css",
        "/static/..%2f..%2f..%2fserver.py/console.css",
        "/%ff%fe",
        "//elsewhere.test/",
        "/topics?search=%3Cscript%3E",
    ],
)
def test_hostile_addresses_do_nothing(console: RunningConsole, path: str) -> None:
    with console.client() as client:
        answer = client.get(console.url + path)
        assert answer.status_code < 500 or answer.status_code == 503
        assert "<script>" not in answer.text
        assert "Traceback" not in answer.text


def test_a_read_only_console_changes_nothing(
    broker: BarnabasBroker, console: RunningConsole, admin: Admin
) -> None:
    with running_console(broker.bootstrap, "--read-only") as console, console.client() as client:
        assert "read-only" in words(client.get("/"))
        assert "New topic" not in client.get("/topics").text
        token = form_token(client.get("/new-topic"))
        for path, fields in (
            ("/new-topic", {"name": "no"}),
            ("/topics/orders/delete", {"confirm": "orders"}),
            ("/topics/orders/produce", {"value": "x"}),
            ("/group/reset?id=billing", {"target": "orders:0=0"}),
        ):
            answer = client.post(path, data={"form_token": token, **fields})
            assert answer.status_code == 403
            assert "read-only" in words(answer)
        assert {"orders"} <= {each.name for each in admin.list_topics()}


@pytest.mark.slow
def test_masked_fields_are_seen_nowhere(broker: BarnabasBroker, admin: Admin) -> None:
    admin.create_topics([NewTopic("masked", 1)])
    with Producer(broker.bootstrap) as producer:
        for number in range(5):
            value = {"id": number, "email": f"privatestuff-{number}", "card": {"number": "privatestuff"}}
            headers = [("user", b"privatestuff")]
            producer.send("masked", json.dumps(value).encode(), key=b"privatestuff-key", headers=headers)
        producer.send("masked", b"privatestuff and no JSON")
        producer.flush()
    rules = ["--mask", "mask*=email,card.number", "--mask", "masked:key=*", "--mask", "masked:headers=user"]
    with running_console(broker.bootstrap, *rules) as console, console.client() as client:
        for path in (
            "/topics/masked/messages",
            "/topics/masked/messages?value=text",
            "/topics/masked/messages?value=hex",
            "/topics/masked/messages/download",
            "/topics/masked/records/0/1",
            "/topics/masked/records/0/1?value=base64&key=hex",
            "/topics/masked/records/0/1/value",
            "/topics/masked/records/0/1/key",
            "/topics/masked/records/0/5/value",
            "/topics/masked/statistics",
            "/api/topics/masked/statistics",
            "/api/topics/masked/messages",
            "/api/topics/masked/records/0/1",
        ):
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert "privatestuff" not in answer.text
            assert b"privatestuff".hex(" ") not in answer.text
            assert "***" in answer.text or "value=hex" in path or "base64" in path, path
        found = client.get("/api/topics/masked/messages", params={"filter": "value.id == 3"}).json()
        assert len(found["rows"]) == 1
        for guess in (
            'value.email == "privatestuff-3"',
            'value contains "privatestuff"',
            'key startswith "private"',
        ):
            assert client.get("/api/topics/masked/messages", params={"filter": guess}).json()["rows"] == []
        assert client.get("/topics/masked/produce?partition=0&offset=1").status_code == 403
        with client.stream("GET", "/topics/masked/messages/live") as live:
            lines = live.iter_lines()
            _line_with(lines, "live")
            with Producer(broker.bootstrap) as producer:
                producer.publish("masked", b'{"id": 9, "email": "privatestuff"}', key=b"privatestuff")
            assert "privatestuff" not in _line_with(lines, "<tr")
    admin.delete_topics(["masked"])


def test_each_change_is_an_audit_line(console: RunningConsole) -> None:
    with console.client() as client:
        submit(client, "/new-topic", "/new-topic", name="audited")
        submit(client, "/topics/audited/manage", "/topics/audited/delete", confirm="audited")
        submit(client, "/new-topic", "/new-topic", name="not valid")

    def noted() -> set[tuple[str, str, str]]:
        lines = [line for line in list(console.process.output) if '"CONSOLE"' in line]
        found = [json.loads(line[line.index("{") :]) for line in lines]
        return {(each["decision"], each["operation"], each["resource"]) for each in found}

    expected = {
        ("done", "create topic", "audited"),
        ("done", "delete topic", "audited"),
        ("failed", "create topic", "not valid"),
    }
    eventually(lambda: expected <= noted(), "each change is an audit line")


def test_viewers_share_one_reader_and_see_what_arrives(
    broker: BarnabasBroker, console: RunningConsole
) -> None:
    with console.client() as first, console.client() as second, Producer(broker.bootstrap) as producer:
        path = "/topics/service-00/messages/live"
        with first.stream("GET", path) as one, second.stream("GET", f"{path}?contains=7") as two:
            assert one.headers["content-type"].startswith("text/event-stream")
            ones, twos = one.iter_lines(), two.iter_lines()
            assert "live" in _line_with(ones, "tail-state")
            assert "live" in _line_with(twos, "tail-state")
            for number in range(40):
                producer.send("service-00", f"value {number}".encode())
            producer.flush()
            rows = _line_with(ones, "<tr")
            assert rows.count("<tr") <= 20
            assert "skipped" in rows
            assert "value 39" in rows
            assert _line_with(twos, "<tr").count("<tr") == 4


def _line_with(lines: Iterable[str], text: str) -> str:
    for line in lines:
        if text in line:
            return line
    raise AssertionError(f"no line with {text}")


# --- signing in ---


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def test_a_token_is_asked_for_where_the_console_has_a_login(secured: SecuredBroker, tmp_path: Path) -> None:
    file = _client_file(secured.settings("admin"), tmp_path)
    with running_console(secured.bootstrap, before=["--command-config", file]) as console:
        with console.client() as client:
            assert client.get("/topics").headers["location"] == "/sign-in"
            assert client.get("/api/topics").status_code == 401
            wrong = submit(client, "/sign-in", "/sign-in", token="guess")
            assert "not the console&#x27;s token" in wrong.text
            token = console.shown_url.partition("token=")[2]
            entered = client.get(f"/sign-in?token={token}", follow_redirects=True)
            assert entered.url.path == "/topics"
            assert client.get("/api/topics").status_code == 200


def test_each_visitor_acts_as_the_user_who_signed_in(secured: SecuredBroker, tmp_path: Path) -> None:
    settings = {name: text for name, text in secured.settings("admin").items() if name != "sasl.jaas.config"}
    with Admin({"bootstrap.servers": secured.bootstrap, **secured.settings("admin")}) as admin:
        admin.create_topics([NewTopic("secret", 1)])
    file = _client_file(settings, tmp_path)
    with running_console(secured.bootstrap, before=["--command-config", file]) as console:
        with console.client() as admin_client, console.client() as alice:
            assert alice.get("/").headers["location"] == "/sign-in"
            started = time.monotonic()
            wrong = submit(alice, "/sign-in", "/sign-in", user="alice", password="wrong")
            assert "refused this name and password" in words(wrong)
            assert time.monotonic() - started >= 0.4
            tricky = submit(alice, "/sign-in", "/sign-in", user="alice", password="${env:HOME}")
            assert "refused this name and password" in words(tricky)
            before = alice.cookies["barnabas_console"]
            inside = submit(alice, "/sign-in", "/sign-in", user="alice", password=USERS["alice"])
            assert inside.url.path == "/"
            assert alice.cookies["barnabas_console"] != before
            submit(admin_client, "/sign-in", "/sign-in", user="admin", password=USERS["admin"])
            names = [each["name"] for each in admin_client.get("/api/topics").json()["rows"]]
            assert "secret" in names
            assert "secret" not in [each["name"] for each in alice.get("/api/topics").json()["rows"]]
            refused = submit(alice, "/new-topic", "/new-topic", name="alices")
            assert refused.status_code == 403
            with alice.stream("GET", "/overview/live") as live:
                out = submit(alice, "/", "/sign-out")
                told = (line for line in live.iter_lines() if line.startswith("data:"))
                assert len(list(islice(told, 3))) < 3
            assert out.url.path == "/sign-in"
            assert alice.get("/api/topics").status_code == 401


def _client_file(settings: dict[str, str], directory: Path) -> str:
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return str(file)
