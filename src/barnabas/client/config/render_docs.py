"""Renderer of the tables of settings in `docs/CLIENT.md`, from the rows.

Run `python -m barnabas.client.config.render_docs docs/CLIENT.md` after a change of a row. It replaces the
text between the marks `<!-- rendered: producer -->` and `<!-- end -->`, for each kind of client.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.client.config.admin_keys import ADMIN
from barnabas.client.config.common import CONNECTIONS
from barnabas.client.config.consumer_keys import FETCHING, GROUP, OFFSETS
from barnabas.client.config.producer_keys import PRODUCER
from barnabas.config.definitions.keys import Key

TABLES: Final[Mapping[str, Iterable[Key]]] = {
    "common": CONNECTIONS,
    "producer": PRODUCER,
    "consumer": (*GROUP, *OFFSETS, *FETCHING),
    "admin": ADMIN,
}

_PART: Final = re.compile(r"(<!-- rendered: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(keys: Iterable[Key]) -> str:
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for key in keys:
        default = key.render(key.default)
        shown = "" if default in (None, "") else f"`{default}`"
        rows.append(f"| `{key.name}` | {shown} | {key.doc} |")
    return "\n".join(rows) + "\n"


def rendered(page: str) -> str:
    """The page with fresh tables."""
    return _PART.sub(lambda part: f"{part[1]}{table(TABLES[part[2]])}{part[3]}", page)


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
