"""Objects are composed: no class is split over a base that only it has."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src"

WITH_ONE_SUBCLASS = {
    "barnabas.cli.exits.InvalidSettings": "an error, and one that says more",
    "barnabas.client.session.Pending": "a blocking connection has plain ones",
    "barnabas.client.waiting.Posted": "posted by itself, too",
    "barnabas.config.keys.Definition": "of topics and groups, too",
    "barnabas.coordinator.group.records.GroupRecord": "of every kind but one",
    "barnabas.node.main.StartupFailed": "an error, and one that says more",
    "pyspark_barnabas.lanes.Lane": "a producer's own, too",
}
"""Classes that are used without their subclass, and for what."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def names_in(module: str, tree: ast.Module) -> dict[str, str]:
    """What the names of a module stand for, by their full names."""
    names = {each.name: f"{module}.{each.name}" for each in tree.body if isinstance(each, ast.ClassDef)}
    for each in tree.body:
        if isinstance(each, ast.ImportFrom) and each.module:
            names |= {alias.asname or alias.name: f"{each.module}.{alias.name}" for alias in each.names}
    return names


def classes() -> Iterator[tuple[str, list[str]]]:
    """Every class with its bases, by their full names."""
    for path in SOURCE.rglob("*.py"):
        module, tree = module_of(path), ast.parse(path.read_text(encoding="utf-8"))
        names = names_in(module, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
                yield f"{module}.{node.name}", [names.get(base, base) for base in bases]


def test_no_class_has_a_base_of_its_own() -> None:
    bases = dict(classes())
    subclasses: dict[str, list[str]] = defaultdict(list)
    for name, above in bases.items():
        for each in above:
            subclasses[each].append(name)
    single = {
        name
        for name, below in subclasses.items()
        if len(below) == 1 and name in bases and "typing.Protocol" not in bases[name]
    }
    assert len(bases) > 1_000, "it has read the code"
    assert single == set(WITH_ONE_SUBCLASS)
