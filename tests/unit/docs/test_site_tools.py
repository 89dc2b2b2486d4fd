"""Staging and link check of the site: tools/stage_site.py, tools/check_site.py, mkdocs.yml."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_names_every_page() -> None:
    settings = (REPOSITORY / "mkdocs.yml").read_text("utf-8")
    named = set(re.findall(r"(\S+\.md)$", settings, re.MULTILINE))
    pages = {f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")}
    assert len(pages) > 20
    assert pages - named == set(), "these pages have no line in mkdocs.yml"
    assert {page for page in named if not (REPOSITORY / page).is_file()} == set()


# --- the link check ---


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "docs" / "index.html").write_text('<h1 id="top">Pages</h1>')
    (tmp_path / "docs" / "guide.html").write_text('<h2 id="ein-schl%C3%BCssel">x</h2><a name="old"></a>')
    return tmp_path


def found(site: Path, html: str, name: str = "index.html") -> list[str]:
    (site / name).write_text(html)
    return list(tool("check_site").faults(site))


@pytest.mark.parametrize(
    "html",
    [
        '<a href="docs/guide.html#old">anchor</a>',
        '<a href="docs/">folder</a><a href="docs#top">folder</a>',
        '<h1 id="here">x</h1><a href="#here">same page</a><a href="#">top</a>',
        '<a href="https://kafka.apache.org/">elsewhere</a><a href="mailto:a@example.org">mail</a>',
        '<img src="picture.png" srcset="picture.png 1x, ./picture.png 2x"><img src="data:image/png;base64,">',
        '<a href="docs/../docs/guide.html?h=word">a search</a>',
    ],
)
def test_good_links_pass(site: Path, html: str) -> None:
    assert found(site, html) == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="docs/gone.html">x</a>', "docs/gone.html does not exist"),
        ('<a href="docs/guide.html#gone">x</a>', "docs/guide.html#gone: the page has no such anchor"),
        ('<a href="#gone">x</a>', "#gone: the page has no such anchor"),
        ('<a href="../outside.html">x</a>', "../outside.html leaves the site"),
        (
            '<a href="/docs/guide.html">x</a>',
            "/docs/guide.html is absolute: it is dead where the site is in a folder",
        ),
        ('<img src="gone.png">', "gone.png does not exist"),
        ('<img srcset="picture.png 1x, gone.png 2x">', "gone.png does not exist"),
        (
            '<script src="https://cdn.example/x.js"></script>',
            "loads https://cdn.example/x.js from another host",
        ),
        ('<script src="//cdn.example/x.js"></script>', "loads //cdn.example/x.js from another host"),
        (
            '<link rel="stylesheet" href="https://cdn.example/x.css">',
            "loads https://cdn.example/x.css from another host",
        ),
        (
            '<p style="background: url(https://cdn.example/x)">',
            "loads https://cdn.example/x from another host",
        ),
    ],
)
def test_bad_links_are_named(site: Path, html: str, fault: str) -> None:
    assert found(site, html) == [f"index.html: {fault}"]


def test_styles_are_checked(site: Path) -> None:
    (site / "x.css").write_text(
        "@import 'https://fonts.example/f.css'; a { background: url(gone.svg) } b { clip-path: url(#c) }"
    )
    assert found(site, "") == [
        "x.css: loads https://fonts.example/f.css from another host",
        "x.css: gone.svg does not exist",
    ]


def test_the_page_for_unknown_addresses_links_from_the_root(site: Path) -> None:
    assert found(site, '<a href="/docs/guide.html">x</a>', "404.html") == []
    assert found(site, '<a href="/gone.html">x</a>', "404.html") == ["404.html: /gone.html does not exist"]


def test_an_empty_site_is_a_fault(tmp_path: Path) -> None:
    assert list(tool("check_site").faults(tmp_path)) == [f"{tmp_path} has no page"]


# --- staging ---


@pytest.mark.parametrize(
    ("github", "python_markdown"),
    [
        ("**Added**\n- one\n- two", "**Added**\n\n- one\n- two"),
        ("text\n| a |\n|---|\n| b |", "text\n\n| a |\n|---|\n| b |"),
        ("1. one\n   - below\n2. two", "1. one\n    - below\n2. two"),
        ("- one\n  - two\n    - three\n\n  of one", "- one\n    - two\n        - three\n\n    of one"),
        ("- one\nstill one\n- two", "- one\n    still one\n- two"),
        ("- one\n```\n- two\n```", "- one\n```\n- two\n```"),
        ("- one\n\ntext", "- one\n\ntext"),
        ("- one\n  ```sh\n    ls\n  ```\n- two", "- one\n    ```sh\n      ls\n    ```\n- two"),
        ("```\ntext\n- no list\n  | no table |\n```", "```\ntext\n- no list\n  | no table |\n```"),
        (r"| `a\|b` | c\|d |", r"| `a|b` | c\|d |"),
    ],
)
def test_markdown_of_github_becomes_python_markdown(github: str, python_markdown: str) -> None:
    assert tool("stage_site").for_python_markdown(github) == python_markdown + "\n"


def test_links_to_code_and_folders_get_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_site = tool("stage_site")
    monkeypatch.setattr(stage_site, "REPOSITORY", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "adr").mkdir()
    (tmp_path / "adr" / "README.md").write_text("# Decisions")
    (tmp_path / "log.py").write_text('"""A fence: ```"""\n')
    (tmp_path / "README.md").write_text(
        "[log](log.py) [adr](adr) `[code](gone.py)` [top](#top) [away](https://example.org/x)\n"
        "```sh\n[code](gone.py)\n```\n[guide](docs/GUIDE.md#a)"
    )
    (tmp_path / "docs" / "GUIDE.md").write_text("# A\n[back](../README.md)")
    stage_site.stage(tmp_path / "pages")
    assert (tmp_path / "pages" / "README.md").read_text() == (
        "[log](log.py.md) [adr](adr/README.md) `[code](gone.py)` [top](#top) [away](https://example.org/x)\n"
        "```sh\n[code](gone.py)\n```\n[guide](docs/GUIDE.md#a)\n"
    )
    assert (
        '````python linenums="1"\n"""A fence: ```"""\n````' in (tmp_path / "pages" / "log.py.md").read_text()
    )
    assert (tmp_path / "pages" / "adr" / "README.md").is_file()


def test_a_dead_link_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage_site = tool("stage_site")
    monkeypatch.setattr(stage_site, "REPOSITORY", tmp_path)
    (tmp_path / "README.md").write_text("[x](gone.md)")
    with pytest.raises(stage_site.DeadLink, match=r"README\.md: gone\.md does not exist"):
        stage_site.stage(tmp_path / "pages")
