"""docs/FEATURES.md promises nothing that no test proves."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "FEATURES.md").read_text(encoding="utf-8")
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
STATEMENT = re.compile(r"^- .*(?:\n {2}.*)*", re.MULTILINE)
STATES = ("- **done** ", "- **not yet** ")


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


@pytest.mark.parametrize("proof", sorted(set(PROOF.findall(PAGE))), ids="::".join)
def test_a_test_that_is_named_exists(proof: tuple[str, str]) -> None:
    path, name = proof
    assert (REPOSITORY / path).is_file(), f"there is no {path}"
    assert name.startswith("test_")
    assert name in functions_of(path), f"{path} has no {name}"


def test_every_statement_has_a_state_and_what_is_done_has_a_proof() -> None:
    statements = STATEMENT.findall(PAGE)
    assert len(statements) > 80
    for statement in statements:
        assert statement.startswith(STATES), statement
        if statement.startswith("- **done** "):
            assert PROOF.search(statement), f"not proven: {statement}"


def test_everything_in_backticks_that_looks_like_a_test_is_understood() -> None:
    assert len(re.findall(r"`tests/[^`]*::", PAGE)) == len(PROOF.findall(PAGE))
