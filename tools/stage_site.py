"""Pages of the site, staged from the repository for Zensical: the first step of tools/build_site.py.

The pages keep their places in the repository, so their links to each other stay as they are. Staging starts
with README.md and docs/, and follows links until each has a target: other pages, pictures, and source files,
which become pages with highlighted code. A link that leads nowhere is an error.

GitHub and Python-Markdown, which Zensical uses, differ in three points:
- GitHub starts a list or a table right after a paragraph. Python-Markdown needs a blank line.
- GitHub nests lists by the width of the marker, Python-Markdown by four spaces.
- Only GitHub needs a backslash before a `|` in code within a table.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.resources import files
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
COPIED = frozenset({".json", ".png", ".svg"})
LANGUAGES = {".py": "python", ".sh": "sh", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
DIAGRAMS = "assets/mermaid.min.js"

_BLOCK = re.compile(r"#|```|~~~|\||<")
"""Lines that end a list without a blank line."""
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_CODE = re.compile(r"(?ms)^ *(`{3,}|~{3,}).*?^ *\1|(?<!`)(`+)(?!`).+?(?<!`)\2(?!`)")
_LINK = re.compile(r"""(?P<before>\]\(|\b(?:href|src)=")(?P<path>[^)\s"#:]+)(?=[)#"\s])""")
_CODE_IN_TABLE = re.compile(r"`[^`]+`")
_ITEM = re.compile(r"( *)([-*]|\d+\.) +")


class DeadLink(Exception):
    """A link whose target the repository does not have."""


def stage(pages: Path) -> None:
    """Write every page and every file that pages link to."""
    shutil.rmtree(pages, ignore_errors=True)
    waiting = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    staged: set[Path] = set()
    while waiting:
        source = waiting.pop()
        if source in staged:
            continue
        staged.add(source)
        place = pages / source.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            text, linked = with_links(source)
            text = for_python_markdown(text)
            if "```mermaid" in text:
                text += f'\n<script src="{os.path.relpath(pages / DIAGRAMS, place.parent)}"></script>\n'
                copy_mermaid(pages)
            place.write_text(text, encoding="utf-8")
            waiting += linked
        elif source.suffix in COPIED:
            shutil.copyfile(source, place)
        else:
            place.with_name(f"{place.name}.md").write_text(code_page(source), encoding="utf-8")


def with_links(page: Path) -> tuple[str, list[Path]]:
    """The text of a page whose links lead to staged files, and the sources of these."""
    linked = []

    def translated(link: re.Match[str]) -> str:
        target = (page.parent / link["path"]).resolve()
        path = link["path"]
        if target.is_dir():
            target, path = target / "README.md", f"{path.rstrip('/')}/README.md"
        if not (target.is_relative_to(REPOSITORY) and target.is_file()):
            raise DeadLink(f"{page.relative_to(REPOSITORY)}: {link['path']} does not exist")
        linked.append(target)
        is_code = target.suffix not in COPIED | {".md"}
        return f"{link['before']}{path}{'.md' if is_code else ''}"

    text = page.read_text(encoding="utf-8")
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [_LINK.sub(translated, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(translated, text[end:])]), linked


def for_python_markdown(text: str) -> str:
    """The same text as Python-Markdown reads it: the three differences above."""
    lines: list[str] = []
    widths: list[int] = []  # where the text of each enclosing list item starts
    fence = ""
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        item = None if fence else _ITEM.match(line)
        after_text = bool(lines and lines[-1].strip())
        continues_item = after_text and not indent and not item and not _BLOCK.match(line)
        if not fence and line.strip() and not continues_item:
            while widths and indent < widths[-1]:
                widths.pop()
        level = len(widths)
        is_table = not fence and line.lstrip().startswith("|")
        if is_table:
            line = _CODE_IN_TABLE.sub(lambda code: code[0].replace(r"\|", "|"), line)  # noqa: PLW2901
        starts_table = is_table and after_text and not lines[-1].lstrip().startswith("|")
        starts_list = item is not None and not level and not _in_list(lines)
        if starts_table or (after_text and starts_list):
            lines.append("")
        shift = widths[-1] if widths else 0
        text_of = line[min(indent, shift) :]
        lines.append("    " * level + text_of if text_of.strip() else "")
        if item:
            widths.append(item.end())
        if marker := _FENCE.match(line):
            if not fence:
                fence = marker[1]
            elif line.strip() == fence:
                fence = ""
    return "\n".join(lines) + "\n"


def _in_list(lines: list[str]) -> bool:
    """Whether the last paragraph belongs to a list."""
    for line in reversed(lines):
        if not line.strip():
            return False
        if _ITEM.match(line):
            return True
    return False


def code_page(source: Path) -> str:
    """A page that shows a file of the repository. The search leaves it out, so that it finds prose."""
    code = source.read_text(encoding="utf-8")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", code)), default=0))
    language = LANGUAGES.get(source.suffix, "text")
    opening = f'{fence}{language} linenums="1"'
    title = source.relative_to(REPOSITORY)
    return f"---\nsearch:\n  exclude: true\n---\n# {title}\n\n{opening}\n{code.rstrip()}\n{fence}\n"


def copy_mermaid(pages: Path) -> None:
    """Mermaid draws the diagrams in the reader's browser. The theme would load it from another host."""
    place = pages / DIAGRAMS
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(files("mermaidx").joinpath("assets/mermaid.js").read_bytes())
