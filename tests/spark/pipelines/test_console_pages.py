"""Pipelines on the console, in a real browser, with the real service and Spark: seen, paused, started again.

`pytest tests/spark/pipelines/test_console_pages.py --screenshots docs/images/console` writes the picture of
the documentation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.sync.producer import Producer
from tests.support.broker import Broker
from tests.support.browser import Browser, browsing, chromium, until, violations
from tests.support.console import running_console
from tests.support.fixtures import TopicFactory, create_topic
from tests.support.pipeline_service import PATIENCE_S, Service
from tests.support.spark import require_spark
from tests.support.topics import produce

pytestmark = pytest.mark.slow


@pytest.fixture
def service(bootstrap: str, tmp_path: Path) -> Iterator[Service]:
    require_spark()
    running = Service(bootstrap, tmp_path)
    yield running
    assert running.process.stop() == 0, running.process.output_text()


@pytest.fixture
def browser(service: Service, bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Browser]:
    pictures = request.config.getoption("--screenshots")
    with (
        chromium() as found,
        running_console(bootstrap, "--pipelines", service.url) as console,
        browsing(found, console.url, pictures) as browser,
    ):
        yield browser


def spec_of(source: str, out: str, letters: str, directory: Path) -> Path:
    spec = directory / "clean-clicks.yaml"
    spec.write_text(
        f"""name: clean-clicks
source: {{type: topic, topics: {source}, schema: "user STRING, ms INT"}}
transforms:
  - filter: ms > 0
  - MaskField: user
  - sql: SELECT user, ms, ms > 800 AS slow FROM input
sink: {{type: topic, topic: {out}}}
errors: {{tolerance: all, dead_letter_topic: {letters}}}
trigger: 1 second
"""
    )
    return spec


def until_state(page: Any, wanted: str) -> None:
    """The page follows the service by itself."""
    end = time.monotonic() + PATIENCE_S
    while page.locator("#pipeline .facts .badge").first.inner_text() != wanted:
        assert time.monotonic() < end, f"never {wanted}: {page.locator('#pipeline').inner_text()}"
        page.wait_for_timeout(200)


def test_a_pipeline_is_seen_paused_started_and_restarted_by_clicking(
    service: Service, browser: Browser, broker: Broker, bootstrap: str, tmp_path: Path
) -> None:
    source, out, letters = "shop-clicks", "shop-clicks-clean", "shop-clicks-bad"
    for name in (source, out, letters):
        create_topic(broker, name)
    produce(bootstrap, source, [{"user": f"u-{at}", "ms": at * 100} for at in range(1, 21)])
    with Producer(bootstrap) as producer:
        bad = producer.send(source, b"{not a click", key=b"k").result(timeout=60)
    service.cli("start", str(spec_of(source, out, letters, tmp_path)))
    page = browser.open("/pipelines")
    page.click("text=clean-clicks")
    until_state(page, "running")
    service.wait("clean-clicks", "RUNNING", records=21)

    # What the page shows is what the service says.
    until(page, "document.querySelector('#pipeline').innerText.includes('Records\\n21')")
    assert "Dead letters\n1" in page.locator("#pipeline").inner_text()
    said = page.locator("svg.graph desc").first.text_content()
    assert "source" in said
    assert "transform ms > 0 → transform user → transform SELECT" in said
    assert "dead letters: 1 record." in said
    assert page.locator("svg.graph rect.stage").count() == 6
    stages = page.locator("[aria-label='Stages of the pipeline'] table").inner_text()
    assert "1. source" in stages
    assert "6. dead letters" in stages
    page.reload()
    letter = page.locator("#dead-letters tbody tr")
    assert letter.count() == 1
    assert "decoding the value" in letter.inner_text()
    assert "{not a click" in letter.inner_text()
    browser.picture(page, "pipeline")
    for is_dark in (False, True):
        assert violations(browser.open("/pipeline?name=clean-clicks", is_dark=is_dark)) == {}
    phone = browser.open("/pipeline?name=clean-clicks", is_phone=True)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390

    page.click("#pause-pipeline")
    assert "Paused clean-clicks." in page.locator("[role=status]").inner_text()
    until_state(page, "paused")
    assert service.status("clean-clicks")["state"] == "PAUSED"
    produce(bootstrap, source, [{"user": "late", "ms": 5}])
    until(page, "document.querySelector('#pipeline').innerText.includes('Lag\\n1')")
    assert page.locator("#pause-pipeline, #restart-pipeline").count() == 0
    page.click("#resume-pipeline")
    until_state(page, "running")
    assert service.wait("clean-clicks", "RUNNING", records=22)["records"] == 22
    until(page, "document.querySelector('#pipeline').innerText.includes('Lag\\n0')")
    before = service.status("clean-clicks")["since_ms"]
    page.click("#restart-pipeline")
    assert "Restarted clean-clicks." in page.locator("[role=status]").inner_text()
    until_state(page, "running")
    end = time.monotonic() + PATIENCE_S
    while service.status("clean-clicks")["since_ms"] == before:
        assert time.monotonic() < end, "it was not restarted"
        time.sleep(0.5)

    # The letter leads to the record that it was made of.
    page.click(f"#dead-letters a[href='/topics/{source}/records/{bad.partition}/{bad.offset}']")
    assert page.locator("pre.record-value").nth(1).inner_text() == "{not a click"
    page.go_back()
    page.click("#stop-pipeline")
    until_state(page, "stopped")
    service.cli("delete", "clean-clicks")


def test_a_failure_is_told_in_place(
    service: Service, browser: Browser, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    spec = tmp_path / "broken.yaml"
    spec.write_text(
        f"name: broken\nsource: {{type: topic, topics: {new_topic()}, schema: id BIGINT}}\n"
        f"transforms:\n  - filter: uper(id) = '1'\nsink: {{type: topic, topic: {new_topic()}}}\n"
    )
    page = browser.open("/pipelines")
    service.cli("start", str(spec))
    service.wait("broken", "FAILED")
    page.reload()
    page.click("text=broken")
    until_state(page, "failed")
    assert "UNRESOLVED_ROUTINE" in page.locator("#errors tbody td").last.inner_text()
    assert page.locator("svg.graph rect.stage.trouble").count() == 3
    assert page.locator("#resume-pipeline").count() == 0
    service.cli("delete", "broken")
