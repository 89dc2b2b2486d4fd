"""Diagrams of docs/ARCHITECTURE.md, drawn from the code.

    python tools/draw_architecture.py          # writes them into the page
    python tools/draw_architecture.py --check  # fails if the page differs

There are two kinds: the imports between packages (without edges that a longer path implies), and the states
of each transition table (`core.transitions`). Each stands between two comments in the page; the text around
them is written by hand.

A table may have states that no code enters: they keep Kafka's names and numbers (`NOT_ENTERED`). The diagrams
leave them out. Where several states may follow the same large set of states, that set is drawn as one node.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import Path

import grimp

from barnabas.core.transitions import Transitions

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src"
PAGE = REPOSITORY / "docs" / "ARCHITECTURE.md"
ROOT = "barnabas"
CONNECTOR = "pyspark_barnabas"
NOT_ENTERED = {"states.TransactionState": {"DEAD", "PREPARE_EPOCH_FENCE"}}
"""States that are only in their table, by the name of the diagram."""
SHARED_STATES_MIN = 4
SHARED_BY_MIN = 3
"""A set of this many states that as many rows contain is drawn as one node."""


def package_edges() -> dict[str, set[str]]:
    """Imports of each package, at run time or for types."""
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
    """`barnabas.storage.log` is in `storage`; the connector is a package of its own.

    So is the state of pipelines, which both the connector and the pipelines import.
    """
    root, *inside = module.split(".")
    if root == CONNECTOR:
        return CONNECTOR
    if inside[:2] == ["pipelines", "state"]:
        return "pipelines.state"
    is_package = inside and (SOURCE / ROOT / inside[0]).is_dir()
    return inside[0] if is_package else ""


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The edges without those that a longer path implies."""

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
    """All transition tables, by module and name of their states."""
    found: dict[str, Transitions[Enum]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if re.search(r"= Transitions\($", path.read_text(encoding="utf-8"), re.MULTILINE):
            name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            for value in vars(importlib.import_module(name)).values():
                if isinstance(value, Transitions):
                    states = type(next(iter(value.rows()))).__name__
                    found[f"{path.stem}.{states}"] = value
    return found


def states_diagram(name: str, table: Transitions[Enum]) -> str:
    """Arrows from each state to those that may follow it."""
    hidden = NOT_ENTERED.get(name, set())
    rows = {
        state.name: {each.name for each in previous} - hidden
        for state, previous in table.rows().items()
        if state.name not in hidden
    }
    shared = shared_states(rows)
    lines = ["```mermaid", "stateDiagram-v2"]
    if shared:
        lines.append(f'    state "any of {", ".join(sorted(shared))}" as ANY_OF')
    for state, previous in rows.items():
        if not previous:
            lines.append(f"    [*] --> {state}")
        has_shared = bool(shared) and previous >= shared
        if has_shared:
            lines.append(f"    ANY_OF --> {state}")
        lines += [f"    {each} --> {state}" for each in sorted(previous - shared if has_shared else previous)]
    return "\n".join([*lines, "```"])


def shared_states(rows: Mapping[str, AbstractSet[str]]) -> AbstractSet[str]:
    """The set of states that saves the most arrows as one node, or an empty set."""
    candidates = [one & other for one in rows.values() for other in rows.values()]

    def saved(states: AbstractSet[str]) -> int:
        users = sum(previous >= states for previous in rows.values())
        is_worth_it = len(states) >= SHARED_STATES_MIN and users >= SHARED_BY_MIN
        return users * (len(states) - 1) if is_worth_it else 0

    best = max(candidates, key=saved)
    return best if saved(best) else frozenset()


def drawn() -> dict[str, str]:
    """Diagrams by their name in the page's comments."""
    diagrams = {"packages": packages_diagram()}
    diagrams |= {name: states_diagram(name, table) for name, table in transition_tables().items()}
    return diagrams


def with_diagrams(page: str) -> str:
    """The page with the current diagrams."""
    diagrams = drawn()
    shown = re.findall(r"<!-- drawn: ([\w.]+) -->", page)
    if sorted(shown) != sorted(diagrams):
        raise SystemExit(f"{PAGE.name} names the diagrams {sorted(shown)}, the code has {sorted(diagrams)}")
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
        raise SystemExit(f"{PAGE.name} differs from the code: run make diagrams")


if __name__ == "__main__":
    main()
