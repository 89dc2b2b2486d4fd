"""`make site`: the site of docs/, built and read by a browser without a network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[3]
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")

pytest.importorskip("zensical", reason="the site needs zensical: pip install -e '.[site]'")
pytest.importorskip("mermaidx", reason="the site needs mermaidx: pip install -e '.[site]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that `tools/build_site.py` built and whose links it checked."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(REPOSITORY / "tools" / "build_site.py"), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "every link leads somewhere" in built.stdout
    return folder / "build" / "site"


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [
        path.relative_to(REPOSITORY).with_suffix(".html") for path in (REPOSITORY / "docs").rglob("*.md")
    ]
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert len(pages) > 50
    indexes = {page.with_name("index.html") if page.stem == "README" else page for page in pages}
    assert indexes - built == set()


def test_the_tour_leads_into_the_code(site: Path) -> None:
    assert 'href="../src/barnabas/storage/log/log.py.html"' in (site / "docs" / "TOUR.html").read_text(
        "utf-8"
    )
    assert "class</span>" in (site / "src" / "barnabas" / "storage" / "log" / "log.py.html").read_text(
        "utf-8"
    )


class Reader:
    """A page in Chromium, with what it requests and what it complains about."""

    def __init__(self, page: Any, site: Path) -> None:
        self.page = page
        self.site = site
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note_console)

    def _note_console(self, message: Any) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.site.as_uri()}/{path}")


@pytest.fixture
def reader(site: Path) -> Iterator[Reader]:
    if not CHROMIUM.exists():
        pytest.skip("the browser tests need Debian's chromium")
    api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright from PyPI")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        reader = Reader(browser.new_page(), site)
        yield reader
        browser.close()
    assert len(reader.requests) > 3
    assert [url for url in reader.requests if not url.startswith(site.as_uri())] == []
    assert reader.complaints == []


def test_the_search_works_from_files(reader: Reader) -> None:
    reader.open("index.html")
    reader.page.get_by_role("button", name="Search").first.click()
    reader.page.get_by_placeholder("Search").last.fill("hanging transaction")
    reader.page.locator("a[href*='barnabas-txn-hanging']").first.wait_for()


def test_diagrams_are_drawn(reader: Reader) -> None:
    """Mermaid replaces each `pre` by a picture in a `div`."""
    drawn = (REPOSITORY / "docs" / "ARCHITECTURE.md").read_text("utf-8").count("```mermaid")
    assert drawn > 5
    reader.open("docs/ARCHITECTURE.html")
    reader.page.wait_for_function(f"document.querySelectorAll('div.mermaid').length === {drawn}")


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_the_site_follows_the_scheme_of_the_browser(reader: Reader, scheme: str, is_dark: bool) -> None:
    reader.page.emulate_media(color_scheme=scheme)
    reader.open("docs/TUTORIAL.html")
    colour = "getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).slice(0, 3).map(Number)"
    assert (sum(reader.page.evaluate(colour)) < 3 * 128) is is_dark
