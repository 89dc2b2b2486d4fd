"""Features in docs/FEATURES.md: each has a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.tiers import is_rest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "FEATURES.md").read_text(encoding="utf-8")
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
STATEMENT = re.compile(r"^- .*(?:\n {2}.*)*", re.MULTILINE)
NOTED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`(?: \(`make ([\w-]+)`\))?")
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
STATES = ("- **done** ", "- **not yet** ")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def test_every_test_that_is_named_exists() -> None:
    missing = [
        f"{path}::{name}"
        for path, name in sorted(set(PROOF.findall(PAGE)))
        if not (REPOSITORY / path).is_file() or not name.startswith("test_") or name not in functions_of(path)
    ]
    assert missing == []


def test_every_statement_has_a_state_and_what_is_done_has_a_proof() -> None:
    statements = STATEMENT.findall(PAGE)
    assert len(statements) > 80
    for statement in statements:
        assert statement.startswith(STATES), statement
        if statement.startswith("- **done** "):
            assert PROOF.search(statement), f"not proven: {statement}"


def test_the_markers_that_make_test_leaves_out_are_those_known_here() -> None:
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert set(re.findall(r"not (\w+)", recipe[1])) == {
        "rest",
        "compatibility",
        "kill_matrix",
        "client_faults",
    }


@cache
def markers_of(path: str) -> dict[str, frozenset[str]]:
    """By test: the names of its own markers, those with a name in the file included, and of its file's."""
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    named = {
        ast.unparse(node.targets[0]): ast.unparse(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and "mark." in ast.unparse(node.value)
    }
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {}
    for node in tree.body:
        if isinstance(node, kinds):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            sources = [
                *decorators,
                *(named.get(each, "") for each in decorators),
                named.get("pytestmark", ""),
            ]
            found[node.name] = frozenset(re.findall(r"mark\.(\w+)", " ".join(sources)))
    return found


def command_of(path: str, name: str) -> str:
    """The target that runs a test which `make test` leaves out, or nothing."""
    markers = markers_of(path)[name]
    if "kill_matrix" in markers:
        return "kill-matrix"
    if "client_faults" in markers:
        return "client-faults"
    if "compatibility" in markers:
        return "test-differential" if path.startswith("tests/differential/") else "test-clients"
    is_left_out = not markers.isdisjoint({"slow", "rest"}) or is_rest(f"{path}::{name}")
    return "test-all" if is_left_out else ""


def test_a_proof_that_make_test_does_not_run_names_the_command_that_does() -> None:
    proofs = sorted(set(NOTED.findall(PAGE)))
    named = {f"{path}::{name}": command for path, name, command in proofs}
    assert len(named) == len(proofs), "a proof stands with two commands"
    assert named == {f"{path}::{name}": command_of(path, name) for path, name, _ in proofs}
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    assert set(named.values()) - {""} <= targets


def test_everything_in_backticks_that_looks_like_a_test_is_understood() -> None:
    assert len(re.findall(r"`tests/[^`]*::", PAGE)) == len(PROOF.findall(PAGE))
