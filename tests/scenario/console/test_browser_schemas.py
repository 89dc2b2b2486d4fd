"""Schemas and sign-in in a real browser: what is shown and clicked, axe-core in light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scenario.console.test_proofs import World, by_bearer, by_certificate, topics_of, world
from tests.scenario.console.test_schemas import PROTO, console, registry
from tests.support import browser as browsers
from tests.support.broker import BarnabasBroker
from tests.support.browser import Browser, until, violations
from tests.support.console import RunningConsole, running_console, submit
from tests.support.schema_registry import Registry

__all__ = ["by_bearer", "by_certificate", "console", "registry", "world"]
pytestmark = pytest.mark.slow
PAGES = (
    "/schemas",
    "/schemas?search=nothing",
    "/schemas/subject?name=points-value",
    "/schemas/difference?name=points-value&before=1&after=2",
    "/schemas/difference?name=points-value&before=1&after=1",
    "/schemas/ids/3",
    "/schemas/ids/5",
    "/topics/schematic/messages?start=oldest",
    "/topics/schematic/messages?start=oldest&value=protobuf",
    "/topics/schematic/records/0/2",
    "/topics/schematic/records/0/4",
    "/topics/schematic/protobuf",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browsers.chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any, console: RunningConsole, request: pytest.FixtureRequest) -> Iterator[Browser]:
    pictures = request.config.getoption("--screenshots")
    with browsers.browsing(chromium, console.url, pictures) as opened:
        yield opened


def close_all(chromium: Any) -> None:
    for context in chromium.contexts:
        context.close()


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_every_page_is_accessible(browser: Browser, is_dark: bool) -> None:
    found: dict[str, Any] = {}
    for path in PAGES:
        page = browser.open(path, is_dark=is_dark)
        found |= {f"{path}: {rule}": nodes for rule, nodes in violations(page).items()}
        page.context.close()
    assert found == {}


def test_no_page_is_wider_than_a_phone(browser: Browser) -> None:
    for path in PAGES:
        page = browser.open(path, is_phone=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        page.context.close()


def test_versions_are_compared_by_clicking(browser: Browser, registry: Registry) -> None:
    page = browser.open("/schemas")
    page.keyboard.press("/")
    page.keyboard.type("points")
    until(page, "document.querySelectorAll('#subjects tbody tr').length === 1")
    page.click("text=points-value")
    assert json.loads(page.locator("#schema-text").inner_text()) == json.loads(registry.schemas[1])
    browser.picture(page, "schema")
    page.select_option("#field-version", "1")
    page.click("button:text-is('Show')")
    assert json.loads(page.locator("#schema-text").inner_text()) == json.loads(registry.schemas[0])
    page.select_option("#field-after", "2")
    page.click("#compare")
    added = page.locator("#difference .added").all_inner_texts()
    assert any('"y"' in each for each in added)
    browser.picture(page, "schema-difference")
    page.click("text=Version 2")
    assert "version=2" in page.url


def test_a_record_leads_to_its_schema(browser: Browser) -> None:
    page = browser.open("/topics/schematic/records/0/2")
    assert json.loads(page.locator("pre.record-value").last.inner_text()) == {"id": 42, "buyer": "ada"}
    page.click("text=protobuf, schema 3")
    assert page.locator("#schema-text").inner_text().strip() == PROTO.strip()


def test_a_schema_is_given_and_forgotten_by_clicking(browser: Browser) -> None:
    page = browser.open("/topics/schematic/messages?start=oldest&value=protobuf")
    assert '1:VARINT 42 2:LEN {"bob"}' in page.locator("#messages").inner_text()
    page.click("text=Protobuf >> nth=0")
    page.fill("#field-proto", PROTO)
    page.fill("#field-message", "Order")
    page.click("#give-proto")
    assert "decoded as shop.Order" in page.locator("[role=status]").inner_text()
    assert '{"id": 42, "buyer": "bob"}' in page.locator("#messages").inner_text()
    browser.picture(page, "protobuf")
    page.click("a:text-is('Protobuf')")
    page.click("#forget-proto")
    assert page.locator("#field-proto").input_value() == ""


# --- sign-in ---


def test_a_browser_with_a_certificate_is_known(
    chromium: Any, world: World, by_certificate: RunningConsole
) -> None:
    file = str(world.certificate("alice"))
    shown = {"origin": by_certificate.url, "certPath": file, "keyPath": file}
    page = chromium.new_context(ignore_https_errors=True, client_certificates=[shown]).new_page()
    page.goto(f"{by_certificate.url}/topics")
    assert "alices" in page.locator("#topics").inner_text()
    assert "bobs" not in page.locator("#topics").inner_text()
    assert "alice" in page.locator(".foot").inner_text()
    page.goto(f"{by_certificate.url}/topics/alices/produce")
    page.fill("#field-value", "by a certificate")
    page.click("#produce")
    assert "Written to partition 0" in page.locator("[role=status]").inner_text()
    assert violations(page) == {}
    stranger = chromium.new_context(ignore_https_errors=True).new_page()
    stranger.goto(f"{by_certificate.url}/topics")
    assert stranger.url.endswith("/sign-in")
    assert violations(stranger) == {}
    close_all(chromium)


def test_a_token_is_pasted(chromium: Any, world: World, by_bearer: RunningConsole) -> None:
    for scheme in ("light", "dark"):
        page = chromium.new_context(color_scheme=scheme).new_page()
        page.goto(f"{by_bearer.url}/topics")
        assert violations(page) == {}
        page.fill("#field-bearer", world.token())
        page.click("text=Sign in with the token")
        assert page.url.endswith("/topics")
        assert "alices" in page.locator("#topics").inner_text()
        page.click("text=Sign out")
        assert page.url.endswith("/sign-in")
    close_all(chromium)
    with by_bearer.client() as client:
        assert topics_of(client, authorization=f"Bearer {world.token()}") == ["alices"]


def test_a_schema_is_registered_and_deleted_by_clicking(
    chromium: Any, console: RunningConsole, registry: Registry, broker: BarnabasBroker
) -> None:
    refused = submit_to(
        console, "/schemas/new", "/schemas/delete", subject="points-value", confirm="points-value"
    )
    assert refused == 403
    with (
        running_console(broker.bootstrap, "--schema-registry", registry.url, "--edit", "schemas") as editing,
        browsers.browsing(chromium, editing.url, None) as browser,
    ):
        page = browser.open("/schemas")
        page.click("text=New schema")
        page.fill("#field-subject", "by-hand-value")
        page.fill("#field-schema", '"string"')
        assert violations(page) == {}
        page = browser.open("/schemas/new")
        page.fill("#field-subject", "by-hand-value")
        page.fill("#field-schema", '"string"')
        page.click("#register")
        assert "Registered by-hand-value with id" in page.locator("[role=status]").inner_text()
        assert registry.schemas[registry.subjects["by-hand-value"][0] - 1] == '"string"'
        page.click("a:text-is('Change')")
        assert page.input_value("#field-schema") == '"string"'
        page.fill("#field-schema", '{"type": "record", "name": "misfit", "fields": []}')
        page.click("#check")
        assert "does not fit the newest version" in page.locator("main").inner_text()
        assert "<b>READER_FIELD_MISSING</b>" in page.locator("main").inner_text()
        assert violations(page) == {}
        page = browser.open("/schemas/edit?name=by-hand-value")
        page.fill("#field-schema", '"long"')
        page.click("#register")
        assert len(registry.subjects["by-hand-value"]) == 2
        assert "2 of 2" in page.locator("main").inner_text()
        page.click("a:text-is('Change')")
        page.select_option("#field-level", "FULL")
        page.click("text=Set the compatibility")
        assert registry.compatibility["by-hand-value"] == "FULL"
        page.click("a:text-is('Change')")
        page.click("text=Delete …")
        page.select_option("#field-version", "")
        page.fill("#field-confirm", "by-hand-value")
        page.click("#delete-schema")
        assert "Deleted by-hand-value." in page.locator("[role=status]").inner_text()
        assert "by-hand-value" not in registry.subjects


def submit_to(console: RunningConsole, page: str, action: str, **fields: str) -> int:
    """Status of a form that this console does not offer; its token comes from another page."""
    with console.client() as client:
        assert client.get(page).status_code == 403
        return submit(client, "/new-topic", action, **fields).status_code
