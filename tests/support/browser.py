"""Debian's Chromium, driven by Playwright, for tests of pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_S

CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(__file__).resolve().parent / "axe" / "axe.min.js"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """Pages of the console, with everything that the browser complains about."""

    def __init__(self, browser: Any, url: str, pictures: Path | None) -> None:
        self._browser = browser
        self._url = url
        self._pictures = pictures
        self.complaints: list[str] = []

    def open(self, path: str, *, is_dark: bool = False, is_phone: bool = False) -> Any:
        page = self._browser.new_context(
            viewport={"width": 390, "height": 844} if is_phone else {"width": 1280, "height": 860},
            color_scheme="dark" if is_dark else "light",
            locale="en-GB",
        ).new_page()
        page.on("pageerror", lambda error: self.complaints.append(f"{path}: {error}"))
        page.on("console", self._heard)
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self.complaints.append(f"{path}: dialog {dialog.message}"))
        page.goto(self._url + path)
        return page

    def picture(self, page: Any, name: str) -> None:
        if self._pictures is not None:
            self._pictures.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=self._pictures / f"{name}.png")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and "status of 404" not in message.text:
            self.complaints.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self._url, "data:")):
            self.complaints.append(f"a request to {request.url}")


def until(page: Any, condition: str, arg: object = None) -> None:
    """Wait for a condition. The page's policy forbids what Playwright's own wait does: code from a text."""
    deadline = time.monotonic() + PATIENCE_S
    while not page.evaluate(condition, arg):
        assert time.monotonic() < deadline, f"never: {condition}"
        page.wait_for_timeout(50)


def violations(page: Any) -> dict[str, list[str]]:
    """Findings of axe-core on the page. It runs beside the policy of the page, which would not let it in."""
    session = page.context.new_cdp_session(page)
    session.send("Page.setBypassCSP", {"enabled": True})
    page.reload()
    page.evaluate(AXE.read_text())
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return {
        f"{each['id']}: {each['help']}": [node["html"][:120] for node in each["nodes"][:3]]
        for each in result["violations"]
    }


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; the test is skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright from PyPI")
    if not CHROMIUM.exists():
        pytest.skip("the browser tests need Debian's chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield browser
        browser.close()


@contextmanager
def browsing(found: Any, url: str, pictures: str | None) -> Iterator[Browser]:
    """Pages of one test. The browser must have nothing to complain about at its end."""
    made = Browser(found, url, None if pictures is None else Path(pictures))
    yield made
    for context in found.contexts:
        context.close()
    assert made.complaints == []
