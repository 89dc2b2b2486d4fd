"""Links between documents: files and headings exist, and docs/README.md lists every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "bench/README.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, made as GitHub makes them, and those that it sets itself."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([\w-]+)">', text))


def test_the_index_lists_every_page() -> None:
    index = (REPOSITORY / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (REPOSITORY / "docs").glob("*.*")} - {"README.md"}
    assert len(pages) > 10
    assert {name for name in pages if f"]({name})" not in index} == set()
