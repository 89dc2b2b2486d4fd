"""Draws the diagrams of docs/ARCHITECTURE.md from the code.

    python tools/draw_architecture.py          # writes them into the page
    python tools/draw_architecture.py --check  # fails if the page shows something else

Two kinds: which package imports which (only the edges that a longer way does not imply), and the states of
everything that has a transition table (`core.transitions`). Each stands between two comments in the page;
what is around them is written by hand.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

import grimp

from barnabas.core.transitions import Transitions

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src"
PAGE = REPOSITORY / "docs" / "ARCHITECTURE.md"
ROOT = "barnabas"
CONNECTOR = "pyspark_barnabas"


def package_edges() -> dict[str, set[str]]:
    """For each package those that it imports, at run time or for types."""
    graph = grimp.build_graph(ROOT, CONNECTOR, cache_dir=None)
    edges: dict[str, set[str]] = {}
    for module in graph.modules:
        package = package_of(module)
        for imported in graph.find_modules_directly_imported_by(module):
            target = package_of(imported)
            if package and target and target != package:
                edges.setdefault(package, set()).add(target)
    return edges


def package_of(module: str) -> str:
    """`barnabas.storage.log` is in `storage`; the connector is a package of its own."""
    root, *inside = module.split(".")
    if root == CONNECTOR:
        return CONNECTOR
    is_package = inside and (SOURCE / ROOT / inside[0]).is_dir()
    return inside[0] if is_package else ""


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the edges that a longer way implies."""

    def reach(package: str) -> set[str]:
        found: set[str] = set()
        waiting = list(edges.get(package, ()))
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting.extend(edges.get(each, ()))
        return found

    return {
        package: {each for each in targets if not any(each in reach(other) for other in targets - {each})}
        for package, targets in edges.items()
    }


def packages_diagram() -> str:
    lines = ["```mermaid", "flowchart TD"]
    for package, targets in sorted(reduced(package_edges()).items()):
        lines += [f"    {package} --> {target}" for target in sorted(targets)]
    return "\n".join([*lines, "```"])


def transition_tables() -> dict[str, Transitions[Enum]]:
    """Every table in the code, under its module and the name of its states."""
    found: dict[str, Transitions[Enum]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if re.search(r"= Transitions\($", path.read_text(encoding="utf-8"), re.MULTILINE):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, Transitions):
                    states = type(next(iter(value.rows()))).__name__
                    found[f"{path.stem}.{states}"] = value
    return found


def states_table(rows: Mapping[Enum, Iterable[Enum]]) -> str:
    lines = ["| state | may follow |", "|---|---|"]
    for state, previous in rows.items():
        lines.append(f"| {state.name} | {', '.join(sorted(each.name for each in previous))} |")
    return "\n".join(lines)


def drawn() -> dict[str, str]:
    """Each diagram under the name that stands in the page's comments."""
    diagrams = {"packages": packages_diagram()}
    diagrams |= {name: states_table(table.rows()) for name, table in transition_tables().items()}
    return diagrams


def with_diagrams(page: str) -> str:
    """The page, with each diagram as the code has it."""
    diagrams = drawn()
    shown = re.findall(r"<!-- drawn: ([\w.]+) -->", page)
    if sorted(shown) != sorted(diagrams):
        raise SystemExit(f"{PAGE.name} has places for {sorted(shown)}, the code has {sorted(diagrams)}")
    for name, diagram in diagrams.items():
        between = re.compile(rf"(<!-- drawn: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        page = between.sub(lambda found, text=diagram: f"{found[1]}{text}\n{found[2]}", page)  # type: ignore[misc]
    return page


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_diagrams(page)
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif fresh != page:
        raise SystemExit(f"{PAGE.name} does not show what the code has: make diagrams")


if __name__ == "__main__":
    main()
