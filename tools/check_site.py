"""Link check of a built site: the last step of tools/build_site.py.

python tools/check_site.py build/site  # the check alone

- Each link of a page leads to a file of the site, and to an anchor that its page has.
- No page needs another host: scripts, styles, fonts, pictures and frames come from the site. A link that a
  reader may follow can lead anywhere.

Links are read from the built pages, so a link that the theme adds is checked as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"src", "poster", "data", "srcset"}
"""Attributes whose target the browser requests by itself, in any element; and `href` in all but <a>."""
NOT_FOUND = "404.html"
"""The page that a server shows for any address: its links cannot be relative."""
_CSS_TARGET = re.compile(r"""(?:url\(|@import)\s*['"]?([^'")\s;]+)""")


class Page(HTMLParser):
    """Anchors of a page, and its targets: (target, whether the browser loads it by itself)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.targets: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name == "srcset":
                self.targets += [(choice.split()[0], True) for choice in value.split(",") if choice.strip()]
            elif name in LOADED:
                self.targets.append((value, True))
            elif name == "href":
                self.targets.append((value, tag not in ("a", "area")))
            elif name == "style":
                self.targets += [(target, True) for target in _CSS_TARGET.findall(value)]


def faults(site: Path) -> Iterator[str]:
    """One line for each dead link and each target on another host that a page would load."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no page"
    for path, page in pages.items():
        for target, is_loaded in page.targets:
            if fault := fault_of(site, path, target, is_loaded, pages):
                yield f"{path.relative_to(site)}: {fault}"
    for style in sorted(site.rglob("*.css")):
        for target in _CSS_TARGET.findall(style.read_text(encoding="utf-8")):
            if not target.startswith("#") and (fault := fault_of(site, style, target, True, pages)):
                yield f"{style.relative_to(site)}: {fault}"


def fault_of(site: Path, path: Path, target: str, is_loaded: bool, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return f"loads {target} from another host" if is_loaded and parts.scheme != "data" else None
    is_absolute = parts.path.startswith("/")
    if is_absolute and path.name != NOT_FOUND:
        return f"{target} is absolute: it is dead where the site is in a folder"
    start = site if is_absolute else path.parent
    file = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
    if file.is_dir():
        file = file / "index.html"
    if not file.is_relative_to(site):
        return f"{target} leaves the site"
    if not file.is_file():
        return f"{target} does not exist"
    if file in pages and unquote(parts.fragment) not in pages[file].anchors:
        return f"{target}: the page has no such anchor"
    return None


def check(site: Path) -> int:
    """Print what is wrong; the exit status."""
    found = list(faults(site))
    for fault in found:
        print(fault, file=sys.stderr)
    if not found:
        print(f"{len(list(site.rglob('*.html')))} pages, every link leads somewhere: open {site}/index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1]).resolve()))
