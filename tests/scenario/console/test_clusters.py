"""One console of several clusters: each with its pages, its sign-in, its sessions and its audit lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from tests.support import browser as browser_support
from tests.support.broker import BarnabasBroker, running
from tests.support.browser import Browser, browsing, until, violations
from tests.support.console import RunningConsole, console_of_several, form_token, submit, words
from tests.support.secured_broker import USERS, SecuredBroker, secured_broker
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

NO_BROKER = "127.0.0.1:9"
PATHS = re.compile(r'\b(?:href|src|action|hx-get|hx-sse:connect)="(/[^"]*)"')


class Three(NamedTuple):
    console: RunningConsole
    shop: BarnabasBroker
    bank: SecuredBroker


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """A cluster without users, one where each visitor signs in, one with the console's login, one away."""
    shop = BarnabasBroker(tmp_path_factory.mktemp("shop") / "data")
    with running(shop), secured_broker(tmp_path_factory.mktemp("bank")) as bank:
        with Admin(shop.bootstrap) as admin, Producer(shop.bootstrap) as producer:
            admin.create_topics([NewTopic("orders", 2), NewTopic("clicks", 1)])
            producer.send("orders", b'{"id": 1}', key=b"first")
            producer.flush()
        with Admin({"bootstrap.servers": bank.bootstrap, **bank.settings("admin")}) as admin:
            admin.create_topics([NewTopic("accounts", 3)])
        own = bank.settings("admin")
        visitors = {name: text for name, text in own.items() if name != "sasl.jaas.config"}
        directory = tmp_path_factory.mktemp("files")
        clusters = {
            "shop": shop.bootstrap,
            "bank": _file(directory / "bank", bank, visitors),
            "vault": _file(directory / "vault", bank, {**own, "console.read.only": "true"}),
            "away": NO_BROKER,
        }
        with console_of_several(clusters) as console:
            yield Three(console, shop, bank)


def _file(path: Path, broker: SecuredBroker, settings: dict[str, str]) -> str:
    lines = {"bootstrap.servers": broker.bootstrap, **settings}
    path.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
    return str(path)


def names_of(admin: Admin) -> set[str]:
    return {each.name for each in admin.list_topics()}


@pytest.fixture
def client(three: Three) -> Iterator[httpx.Client]:
    with three.console.client() as client:
        yield client


def test_the_list_has_what_this_visitor_may_see(three: Three, client: httpx.Client) -> None:
    eventually(lambda: "shop connected 1 2 3" in words(client.get("/")))
    shown = words(client.get("/"))
    assert "bank sign in first" in shown
    assert "vault sign in first" in shown
    assert "away no broker answers" in shown
    assert "set-cookie" not in client.get("/").headers
    submit(client, "/clusters/bank/sign-in", "/clusters/bank/sign-in", user="admin", password=USERS["admin"])
    assert "bank connected 1 1 3" in words(client.get("/"))


def test_every_link_of_a_page_stays_in_its_cluster(client: httpx.Client) -> None:
    base = "/clusters/shop"
    pages = ["/", "/topics", "/topics/orders", "/topics/orders/messages?live=true", "/groups", "/cluster"]
    pages += ["/topics/orders/records/0/0", "/topics/orders/produce", "/new-topic", "/api", "/no-such-page"]
    outside = {"/", *(f"/clusters/{name}/" for name in ("bank", "vault", "away"))}
    for path in pages:
        page = client.get(base + path)
        found = set(PATHS.findall(page.text)) - outside
        assert found, path
        assert all(each.startswith(f"{base}/") for each in found), path
        for each in found:
            if each.startswith(f"{base}/static/"):
                assert client.get(each).status_code == 200, each
    assert client.get(base).headers["location"] == f"{base}/"
    described = client.get(f"{base}/api/openapi.json").json()
    assert described["servers"] == [{"url": base}]
    names = [each["name"] for each in client.get(f"{base}/api/topics").json()["rows"]]
    assert sorted(names) == ["clicks", "orders"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics", 404),
        ("/clusters", 404),
        ("/clusters/", 404),
        ("/clusters/nothing/", 404),
        ("/clusters/nothing", 404),
        ("/clusters/shop/clusters/shop/topics", 404),
        ("/clusters/shop%2Ftopics", 200),  # a slash is a slash
        ("/clusters/..%2fshop/topics", 404),
        ("/clusters/SHOP/", 404),
        ("/clusters/away/topics", 503),
        ("/api/topics", 404),
        ("/mcp", 404),
    ],
)
def test_other_paths_are_refused(client: httpx.Client, path: str, status: int) -> None:
    found = client.get(path)
    assert found.status_code == status
    assert "default-src 'none'" in found.headers["content-security-policy"]


def test_a_session_of_one_cluster_opens_no_other(three: Three, client: httpx.Client) -> None:
    bank = "/clusters/bank"
    assert client.get(f"{bank}/topics").headers["location"] == f"{bank}/sign-in"
    inside = submit(client, f"{bank}/sign-in", f"{bank}/sign-in", user="alice", password=USERS["alice"])
    assert inside.url.path == f"{bank}/topics"
    assert client.get(f"{bank}/api/topics").json()["rows"] == []  # alice may describe none
    cookie = client.cookies["barnabas_console-bank"]
    for name in ("shop", "vault"):
        with three.console.client(cookies={f"barnabas_console-{name}": cookie}) as other:
            begun = other.get(f"/clusters/{name}/sign-in")
            assert begun.cookies[f"barnabas_console-{name}"] != cookie
    assert client.get("/clusters/vault/api/topics").status_code == 401
    out = submit(client, f"{bank}/", f"{bank}/sign-out")
    assert out.url.path == f"{bank}/sign-in"


def test_the_token_of_a_form_counts_in_its_cluster_alone(three: Three, client: httpx.Client) -> None:
    bank = submit(
        client, "/clusters/bank/sign-in", "/clusters/bank/sign-in", user="admin", password=USERS["admin"]
    )
    token = form_token(bank)
    client.get("/clusters/shop/")
    forged = client.post("/clusters/shop/new-topic", data={"form_token": token, "name": "forged"})
    assert forged.status_code == 403
    assert "out of date" in words(forged)
    with Admin(three.shop.bootstrap) as admin:
        assert "forged" not in names_of(admin)


def test_a_cluster_has_its_own_token_and_may_be_read_only(three: Three, client: httpx.Client) -> None:
    (line,) = [each for each in three.console.process.output if each.startswith("console of vault: ")]
    url = line.removeprefix("console of vault: ").strip()
    assert url.startswith(f"{three.console.url}/clusters/vault/sign-in?token=")
    entered = client.get(url, follow_redirects=True)
    assert entered.url.path == "/clusters/vault/"
    assert "read-only" in words(entered)
    assert "vault read-only 1 1 3" in words(client.get("/"))
    token = form_token(client.get("/clusters/bank/sign-in"))
    refused = client.post("/clusters/vault/new-topic", data={"form_token": token, "name": "new"})
    assert refused.status_code == 403


def test_an_audit_line_names_its_cluster(three: Three, client: httpx.Client) -> None:
    made = submit(client, "/clusters/shop/new-topic", "/clusters/shop/new-topic", name="noted")
    assert made.url.path == "/clusters/shop/topics/noted"

    def lines() -> list[dict[str, Any]]:
        found = re.findall(r"\{.*\}", three.console.process.output_text())
        return [each for each in map(json.loads, found) if each["resource"] == "noted"]

    eventually(lambda: bool(lines()))
    (line,) = lines()
    assert line["cluster"] == "shop"
    assert line["decision"] == "done"
    with Admin(three.shop.bootstrap) as admin:
        assert "noted" in names_of(admin)
        admin.delete_topics(["noted"])


def test_agents_ask_each_cluster_by_its_address(three: Three) -> None:
    clusters = {"one": three.shop.bootstrap, "two": NO_BROKER}
    question = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "list_topics", "arguments": {}},
    }
    with console_of_several(clusters, "--mcp", "all") as console, console.client() as agent:
        agent.get("/clusters/one/")
        found = agent.post("/clusters/one/mcp", json=question).json()["result"]
        assert "orders" in found["content"][0]["text"]
        away = agent.post("/clusters/two/mcp", json=question).json()["result"]
        assert away["isError"]
        assert agent.post("/mcp", json=question).status_code in (404, 405)


# --- in a browser ---


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser_support.chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any, three: Three, request: pytest.FixtureRequest) -> Iterator[Browser]:
    with browsing(chromium, three.console.url, request.config.getoption("--screenshots")) as found:
        yield found


def test_a_visitor_goes_from_cluster_to_cluster_by_clicking(browser: Browser, three: Three) -> None:
    page = browser.open("/")
    page.set_viewport_size({"width": 1280, "height": 480})
    browser.picture(page, "clusters")
    page.get_by_role("main").get_by_role("link", name="shop", exact=True).click()
    until(page, "document.querySelector('.page-head .live')?.textContent === 'live'")
    with Admin(three.shop.bootstrap) as admin:
        topics = names_of(admin)
    tile = page.locator(".tile", has_text="Topics").locator(".tile-value")
    assert tile.inner_text() == str(len(topics))
    tile.get_by_role("link").click()
    page.get_by_role("searchbox").fill("ord")
    until(page, "!document.querySelector('#topics').textContent.includes('clicks')")
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_role("link", name="Messages").first.click()
    assert "first" in page.locator("#messages").inner_text()
    page.locator(".switch summary").click()
    page.locator(".switch").get_by_role("link", name="bank").click()
    page.get_by_label("User").fill("admin")
    page.get_by_label("Password").fill(USERS["admin"])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("navigation", name="Sections").get_by_role("link", name="Topics").click()
    assert page.get_by_role("link", name="accounts").is_visible()
    assert page.get_by_role("link", name="orders").count() == 0
    page.locator(".switch summary").click()
    page.locator(".switch").get_by_role("link", name="All clusters").click()
    row = page.get_by_role("row", name="bank")
    assert "connected" in row.inner_text()


def test_a_topic_is_created_and_deleted_in_its_cluster_alone(browser: Browser, three: Three) -> None:
    page = browser.open("/clusters/shop/topics")
    page.click("text=New topic")
    page.fill("#field-name", "only-here")
    page.click("text=Create >> nth=-1")
    assert "Created topic only-here." in page.locator("[role=status]").inner_text()
    with Admin(three.shop.bootstrap) as admin:
        assert "only-here" in names_of(admin)
        page.click("text=Manage")
        page.click("text=Delete this topic …")
        page.locator("form[action='/clusters/shop/topics/only-here/delete'] input[name=confirm]").fill(
            "only-here"
        )
        page.click("#delete-topic")
        assert "Deleted topic only-here." in page.locator("[role=status]").inner_text()
        assert page.url.endswith("/clusters/shop/topics")
        assert "only-here" not in names_of(admin)


def test_the_pages_are_accessible_and_fit_a_phone(browser: Browser) -> None:
    found: dict[str, Any] = {}
    for path in ("/", "/clusters/shop/", "/clusters/shop/topics", "/clusters/away/"):
        for is_dark in (False, True):
            page = browser.open(path, is_dark=is_dark)
            found |= {f"{path}: {each}": nodes for each, nodes in violations(page).items()}
            page.context.close()
        page = browser.open(path, is_phone=True)
        page.locator(".switch summary").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        page.context.close()
    assert found == {}
    browser.complaints[:] = [each for each in browser.complaints if "status of 503" not in each]
