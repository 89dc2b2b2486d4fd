"""Imports of examples, benchmarks and tools exist: few of these programs run with every change."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAMS = [path for folder in ("examples", "bench", "tools") for path in (REPOSITORY / folder).glob("*.py")]


def named(program: Path) -> list[tuple[str, str]]:
    """Modules of the product, and the names imported from them."""
    nodes = ast.walk(ast.parse(program.read_text(encoding="utf-8")))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    ours = [node for node in froms if str(node.module).split(".")[0] in ("barnabas", "pyspark_barnabas")]
    return [(str(node.module), alias.name) for node in ours for alias in node.names]


def test_every_example_is_run_by_a_test() -> None:
    folder = REPOSITORY / "tests" / "spark" / "pipelines"
    tests = "".join(path.read_text("utf-8") for path in folder.glob("test_*.py"))
    examples = [path for path in (REPOSITORY / "examples").iterdir() if path.suffix in (".py", ".yaml")]
    assert len(examples) > 5
    assert {path.name for path in examples if f'"{path.name}"' not in tests} == set()


def test_what_the_makefile_runs_is_there() -> None:
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    modules = set(re.findall(r"python -m ((?:barnabas|tests)\.[a-z_.]+)", makefile))
    programs = set(re.findall(r"python ((?:tools|bench)/[a-z_]+\.py)", makefile))
    assert len(modules) > 4
    assert len(programs) > 4
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()
    assert {name for name in programs if not (REPOSITORY / name).is_file()} == set()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_is_imported_is_there(program: Path) -> None:
    for name, what in named(program):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if str(error.name).startswith(("barnabas", "pyspark_barnabas")):
                raise
            pytest.skip(f"{error.name} is not installed")
        assert hasattr(module, what) or importlib.util.find_spec(f"{name}.{what}"), f"{name} has no {what}"
