"""The diagrams of docs/ARCHITECTURE.md show the code, and no module imports another in a circle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_diagrams_are_drawn_from_the_code() -> None:
    command = [sys.executable, "tools/draw_architecture.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At run time or for types: what imports nothing that is left goes, until only circles would be left."""
    graph = grimp.build_graph("barnabas", "pyspark_barnabas", cache_dir=None)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(imports) > 500
    while leaves := {module for module, imported in imports.items() if not imported}:
        imports = {module: imported - leaves for module, imported in imports.items() if module not in leaves}
    assert set(imports) == set()
