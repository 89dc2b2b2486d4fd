"""Tables of docs/SECURITY.md: rights from `barnabas.requests.access`, limits from `barnabas.core.limits`.

python tools/render_security.py          # writes them into the page
python tools/render_security.py --check  # fails if the page differs
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from barnabas.core import limits
from barnabas.handlers import APIS
from barnabas.protocol.messages import request_class
from barnabas.requests.access import ACCESS, ALL_VERSIONS, Check

PAGE = Path(__file__).resolve().parents[1] / "docs" / "SECURITY.md"
RENDERED = re.compile(r"(<!-- drawn: (access|limits) -->\n).*?(<!-- end -->)", re.DOTALL)
MIB = 1 << 20


def limit_rows() -> Iterator[str]:
    """Each limit with its description, which may cover several limits."""
    yield "| limit | value | of |"
    yield "|---|---|---|"
    named: list[str] = []
    for node in ast.parse(Path(limits.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            named.append(node.target.id)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and named:
            description = " ".join(str(node.value.value).split()).replace("|", r"\|")
            for name in named:
                yield f"| `{name}` | {shown(name, getattr(limits, name))} | {description} |"
            named.clear()
    assert not named, f"no text describes {named}"


def shown(name: str, value: float) -> str:
    if "BYTES" in name and not value % 1024:
        return f"{value // MIB:,} MiB" if not value % MIB else f"{value // 1024:,} KiB"
    return f"{value:,}"


def access_rows() -> Iterator[str]:
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
    tables = {"access": "\n".join(access_rows()), "limits": "\n".join(limit_rows())}
    fresh = RENDERED.sub(lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}", page)
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != page:
        raise SystemExit(f"{PAGE.name} differs from the code: run make diagrams")


if __name__ == "__main__":
    main()
