"""Static files of the console, served with their digest in the path, so that browsers may keep them for ever.

The files of htmx are vendored unchanged; `static/vendor/SOURCES.md` names their origin, licence and digest.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml; charset=utf-8",
}
NAMES: Final = (
    "console.css",
    "console.js",
    "icon.svg",
    "vendor/htmx.min.js",
    "vendor/hx-csp.min.js",
    "vendor/hx-sse.min.js",
)


class Asset(NamedTuple):
    path: str
    body: bytes
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """Assets by name."""
    folder = files("barnabas.console").joinpath("static")
    found = {}
    for name in NAMES:
        body = folder.joinpath(*name.split("/")).read_bytes()
        digest = hashlib.sha256(body).hexdigest()[:16]
        path = f"/static/{digest}/{name.rpartition('/')[2]}"
        found[name] = Asset(path, body, TYPES[name.rpartition(".")[2]])
    return found


def path_of(name: str) -> str:
    return assets()[name].path


@cache
def by_path() -> dict[str, Asset]:
    return {each.path: each for each in assets().values()}
