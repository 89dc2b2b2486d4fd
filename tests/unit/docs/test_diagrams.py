"""Diagrams of docs/ARCHITECTURE.md, and import cycles between modules."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_diagrams_are_drawn_from_the_code() -> None:
    command = [sys.executable, "tools/draw_architecture.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_states_that_the_diagrams_leave_out_are_never_entered() -> None:
    """Each stands in the module of its table alone."""
    not_entered = runpy.run_path(str(REPOSITORY / "tools" / "draw_architecture.py"))["NOT_ENTERED"]
    assert not_entered
    for name, states in not_entered.items():
        module, _, enum = name.partition(".")
        for path in (REPOSITORY / "src").rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if path.stem != module and any(state in source for state in states):
                used = states & set(states_used(ast.parse(source), module, enum))
                assert not used, f"{path} uses {used}, which no diagram shows"


def states_used(tree: ast.Module, module: str, enum: str) -> Iterator[str]:
    """Names that are imported from the module of a table, and attributes of its enum."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith(f".{module}"):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == enum:
            yield node.attr


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At run time or for types: what imports nothing that is left goes, until only circles would be left."""
    graph = grimp.build_graph("barnabas", "pyspark_barnabas", cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(imports) > 500
    while leaves := {module for module, imported in imports.items() if not imported}:
        imports = {module: imported - leaves for module, imported in imports.items() if module not in leaves}
    assert set(imports) == set()
