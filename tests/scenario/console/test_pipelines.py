"""Pipelines on the console, by the real service with drivers that have no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from barnabas.client.admin.calls.topics import NewTopic
from barnabas.client.sync.admin import Admin
from barnabas.client.sync.producer import Producer
from barnabas.pipelines.state.progress import Progress
from tests.scenario.pipelines.conftest import RunningService, running_service
from tests.support import browser as browser_support
from tests.support.broker import BarnabasBroker
from tests.support.browser import Browser, browsing, until, violations
from tests.support.console import RunningConsole, running_console, submit, words
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

SOURCE, LETTERS = "clicks-to-clean", "bad-clicks"
SPEC: dict[str, Any] = {
    "source": {"type": "topic", "topics": [SOURCE], "schema": "user STRING, ms INT"},
    "transforms": [{"filter": "ms > 0"}, {"MaskField": "user"}],
    "sink": {"type": "topic", "topic": "clean-clicks"},
    "errors": {"tolerance": "all", "dead_letter_topic": LETTERS},
}
HOSTILE = b"<img src=x onerror=\"document.title='owned'\">\x1b[2J\xff"
RATE: dict[str, Any] = {"source": {"type": "rate"}, "sink": {"type": "console"}}
PAGE = "/pipeline?name=clean"


@pytest.fixture(scope="module")
def service(broker: BarnabasBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(SOURCE, 1), NewTopic(LETTERS, 2)])
    with Producer(broker.bootstrap) as producer:
        producer.send(SOURCE, b"{not a click", key=b"k")
        for connector in ("clean", "another"):
            said = {
                "topic": SOURCE,
                "partition": "0",
                "offset": "0",
                "connector.name": connector,
                "stage": "VALUE_CONVERTER",
                "exception.message": f"of {connector}: not JSON",
            }
            headers = [(f"__connect.errors.{name}", text.encode()) for name, text in said.items()]
            producer.send(LETTERS, b"{not a click", headers=headers)
        hostile = {
            "topic": HOSTILE,
            "partition": "²".encode(),
            "offset": b"9" * 90,
            "connector.name": b"clean",
        }
        hostile |= {"connector.name": b"clean", "stage": HOSTILE, "exception.message": HOSTILE}
        producer.send(
            LETTERS, HOSTILE, headers=[(f"__connect.errors.{name}", value) for name, value in hostile.items()]
        )
        producer.flush()
    with running_service(broker.bootstrap, tmp_path_factory.mktemp("state")) as running:
        with httpx.Client(base_url=running.url, timeout=60) as http:
            for name, spec in (
                ("clean", SPEC),
                ("rate", {"source": {"type": "rate"}, "sink": {"type": "console"}}),
            ):
                config = {"connector.class": "Pipeline", "pipeline.spec": {"name": name, **spec}}
                http.put(f"/connectors/{name}/config", json=config).raise_for_status()
        yield running


@pytest.fixture(scope="module")
def console(broker: BarnabasBroker, service: RunningService) -> Iterator[RunningConsole]:
    with running_console(broker.bootstrap, "--pipelines", service.url) as console:
        yield console


@pytest.fixture
def client(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.client() as client:
        yield client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser_support.chromium() as found:
        yield found


@pytest.fixture
def browser(chromium: Any, console: RunningConsole, request: pytest.FixtureRequest) -> Iterator[Browser]:
    with browsing(chromium, console.url, request.config.getoption("--screenshots")) as found:
        yield found


def report(service: RunningService, records: int, lag: int) -> None:
    """A micro-batch as the driver reports it."""
    attempt, observer = service.drivers.running["clean"]
    progress = Progress("clean", 4, records, 60.0, 250, 1, lag, {SOURCE: {"0": 1}})
    assert service._loop is not None
    service._loop.call_soon_threadsafe(observer.on_progress, "clean", attempt, progress)


def test_the_graph_has_its_table(client: httpx.Client, service: RunningService) -> None:
    page = client.get(PAGE)
    assert page.status_code == 200, words(page)
    stages = [
        f"1. source topic {SOURCE}",
        "2. transform filter ms > 0 1 3. transform",
        "3. transform MaskField user 2",
    ]
    for stage in [*stages, "4. sink topic clean-clicks 3", f"5. dead letters topic {LETTERS} 1, 2, 3, 4"]:
        assert stage in words(page)
    assert page.text.count('class="stage ') == 5
    assert page.text.count('class="edge"') == 3
    assert page.text.count('class="edge bad"') == 1
    found = client.get("/api/pipeline", params={"name": "clean"}).json()
    assert [each["kind"] for each in found["graph"]["stages"]][-1] == "dead letters"
    assert found["graph"]["group_id"] == "pipeline-clean"
    assert found["status"]["pipeline"]["state"] == "RUNNING"


def test_dead_letters_tell_their_reason_and_their_source(client: httpx.Client) -> None:
    page = client.get(PAGE)
    assert "of clean: not JSON" in words(page)
    assert "of another" not in words(page)
    assert f'href="/topics/{SOURCE}/records/0/0"' in page.text
    rows = client.get("/api/pipeline/dead-letters", params={"name": "clean"}).json()["rows"]
    told = next(row for row in rows if row["source_offset"] is not None)
    assert (told["source_topic"], told["source_partition"], told["source_offset"]) == (SOURCE, 0, 0)
    assert told["stage"] == "decoding the value"
    hostile = next(row for row in rows if row["source_offset"] is None)
    assert hostile["source_partition"] is None
    every = client.get(
        f"/topics/{LETTERS}/messages", params={"filter": 'header.__connect.errors.connector.name == "clean"'}
    )
    assert "2 records read" not in words(every)
    assert every.text.count(f'href="/topics/{LETTERS}/records/') == 2
    none = client.get("/api/pipeline/dead-letters", params={"name": "rate"})
    assert none.status_code == 404


def test_what_the_service_does_not_know(client: httpx.Client) -> None:
    assert client.get("/pipeline?name=missing").status_code == 404
    assert client.get("/pipeline").status_code == 400
    assert client.get("/pipeline?name=..%2F..%2Fadmin%2Floggers").status_code == 404
    assert submit(client, PAGE, "/pipeline/explode?name=clean").status_code == 404
    rate = words(client.get("/pipeline?name=rate"))
    assert "1. source rate" in rate
    assert "Dead letters –" not in rate


def test_the_page_follows_the_service_and_its_buttons_act(
    browser: Browser, client: httpx.Client, service: RunningService
) -> None:
    page = browser.open("/pipelines")
    page.click("text=clean >> nth=0")
    report(service, 1_200, 7)
    until(page, "document.querySelector('#pipeline').innerText.includes('Records\\n1,200')")
    assert "Rate, last minute" in page.locator("#pipeline").inner_text()
    assert "7 waiting" in page.locator("svg.graph").first.text_content()
    browser.picture(page, "pipeline")
    page.click("#pause-pipeline")
    assert "Paused clean." in page.locator("[role=status]").inner_text()
    until(page, "document.querySelector('#pipeline .badge').innerText === 'paused'")
    assert client.get("/api/pipeline?name=clean").json()["status"]["pipeline"]["state"] == "PAUSED"
    until(page, "document.querySelector('#pause-pipeline, #restart-pipeline') === null")
    starts = len(service.drivers.started)
    page.click("#resume-pipeline")
    until(page, "document.querySelector('#pipeline .badge').innerText === 'running'")
    page.click("#restart-pipeline")
    eventually(lambda: len(service.drivers.started) == starts + 2, "it was started and restarted")
    page.click("#stop-pipeline")
    until(page, "document.querySelector('#pipeline .badge').innerText === 'stopped'")
    page.click("#resume-pipeline")
    until(page, "document.querySelector('#pipeline .badge').innerText === 'running'")


def test_errors_are_told_with_their_times(browser: Browser, service: RunningService) -> None:
    page = browser.open(PAGE)
    attempt, observer = service.drivers.running["clean"]
    assert service._loop is not None
    service._loop.call_soon_threadsafe(observer.on_ended, "clean", attempt, "<b>no broker</b> answers")
    until(page, "document.querySelector('#errors tbody tr') !== null")
    row = page.locator("#errors tbody tr").first.inner_text()
    assert "<b>no broker</b> answers" in row
    assert "\t1\t" in row
    assert page.locator("#errors b").count() == 0


def test_the_pages_are_accessible_and_fit_a_phone(browser: Browser) -> None:
    for path in (PAGE, "/pipelines", "/pipeline?name=rate"):
        for is_dark in (False, True):
            assert violations(browser.open(path, is_dark=is_dark)) == {}
        phone = browser.open(path, is_phone=True)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert "owned" not in browser.open(PAGE).title()


def test_a_pipeline_in_a_read_only_console_has_no_buttons(
    broker: BarnabasBroker, service: RunningService, tmp_path: Path
) -> None:
    with (
        running_console(broker.bootstrap, "--pipelines", service.url, "--read-only") as console,
        console.client() as client,
    ):
        page = client.get(PAGE)
        assert "pause-pipeline" not in page.text
        assert "form_token" not in page.text


def test_a_pipeline_is_made_configured_and_deleted_by_clicking(
    chromium: Any, broker: BarnabasBroker, service: RunningService
) -> None:
    arguments = ("--pipelines", service.url, "--edit", "pipelines")
    with (
        running_console(broker.bootstrap, *arguments) as editing,
        httpx.Client(base_url=service.url, timeout=60) as http,
        browsing(chromium, editing.url, None) as browser,
    ):
        page = browser.open("/pipelines")
        page.click("text=New pipeline")
        page.fill("#field-name", "by-hand")
        config = {"connector.class": "Pipeline", "pipeline.spec": {"name": "by-hand", **RATE}}
        page.fill("#field-config", json.dumps({**config, "pipeline.spec": {"sink": {"type": "nothing"}}}))
        page.click("#check-pipeline")
        assert page.locator(".note.bad").count() >= 1
        assert violations(page) == {}
        page = browser.open("/new-pipeline")
        page.fill("#field-name", "by-hand")
        page.fill("#field-config", json.dumps(config))
        page.click("#check-pipeline")
        assert "The service accepts this configuration." in page.locator("main").inner_text()
        page.click("#save-pipeline")
        assert "Created by-hand." in page.locator("[role=status]").inner_text()
        stored = http.get("/connectors/by-hand/config").json()
        assert json.loads(stored["pipeline.spec"])["sink"]["type"] == "console"
        page.click("a:text-is('Configure')")
        assert violations(page) == {}
        changed = json.loads(page.input_value("#field-config"))
        changed["pipeline.spec"]["source"]["rows_per_second"] = 7
        page.fill("#field-config", json.dumps(changed))
        page.click("#save-pipeline")
        assert "Configured by-hand." in page.locator("[role=status]").inner_text()
        stored = http.get("/connectors/by-hand/config").json()
        assert json.loads(stored["pipeline.spec"])["source"]["rows_per_second"] == 7
        page.click("a:text-is('Configure')")
        page.click("text=Delete this pipeline …")
        page.fill("#field-confirm", "by-hand")
        page.click("#delete-pipeline")
        assert "Deleted by-hand." in page.locator("[role=status]").inner_text()
        assert http.get("/connectors/by-hand").status_code == 404


def test_a_console_without_edit_changes_no_pipelines(client: httpx.Client) -> None:
    assert "New pipeline" not in words(client.get("/pipelines"))
    assert client.get("/new-pipeline").status_code == 403
    assert client.get("/pipeline/configuration?name=clean").status_code == 403
    for path, fields in (
        ("/new-pipeline", {"name": "no", "config": "{}"}),
        ("/pipeline/configuration?name=clean", {"config": "{}"}),
        ("/pipeline/delete?name=clean", {"confirm": "clean"}),
    ):
        refused = submit(client, PAGE, path, **fields)
        assert refused.status_code == 403
        assert "--edit pipelines" in words(refused)
    assert client.get(PAGE).status_code == 200


def test_a_refused_change_is_an_audit_line_too(client: httpx.Client, console: RunningConsole) -> None:
    assert submit(client, PAGE, "/pipeline/pause?name=nothing").status_code == 404

    def noted() -> bool:
        lines = [line for line in list(console.process.output) if '"CONSOLE"' in line]
        return any('"pause pipeline"' in line and '"nothing"' in line for line in lines)

    eventually(noted)
