"""Renders the table of rights in docs/SECURITY.md from `barnabas.requests.access`.

python tools/render_security.py          # writes it into the page
python tools/render_security.py --check  # fails if the page shows something else
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from barnabas.handlers import APIS
from barnabas.protocol.messages import request_class
from barnabas.requests.access import ACCESS, ALL_VERSIONS, Check

PAGE = Path(__file__).resolve().parents[1] / "docs" / "SECURITY.md"
PLACE = re.compile(r"(<!-- drawn: access -->\n).*?(<!-- end -->)", re.DOTALL)


def rows() -> Iterator[str]:
    yield "| API | versions | needs | of | otherwise |"
    yield "|---|---|---|---|---|"
    for api in APIS:
        name = f"{request_class(api.key).__name__.removesuffix('Request')} ({int(api.key)})"
        for check in ACCESS[api.key]:
            rights = " or ".join(map(str, check.rights))
            cells = (name, versions(check, api.versions), rights, check.of, check.denied.value)
            yield f"| {' | '.join(cells)} |"
        if not ACCESS[api.key]:
            yield f"| {name} | all | nothing | | |"


def versions(check: Check, served: range) -> str:
    if check.versions == ALL_VERSIONS:
        return "all"
    covered = [each for each in served if each in check.versions]
    return f"{covered[0]}–{covered[-1]}"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = "\n".join(rows())
    fresh = PLACE.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page)
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != page:
        raise SystemExit(f"{PAGE.name} does not show the table of the code: make diagrams")


if __name__ == "__main__":
    main()
