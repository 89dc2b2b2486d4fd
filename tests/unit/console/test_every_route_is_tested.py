"""The table of the console's pages and changes is complete, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.console.pages import SECTIONS

TESTS = Path(__file__).resolve().parents[2]
TABLE = (TESTS / "scenario" / "console" / "ROUTES.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([A-Z]+ /\S*)` \| (.+) \|$", re.MULTILINE)
PROOF = re.compile(r"`(\w+\.py)::(\w+)`")
PLACES = (TESTS / "scenario" / "console", TESTS / "spark" / "pipelines")


def test_each_route_has_a_row_in_the_table() -> None:
    routes = {f"{each.method} {each.path}" for section in SECTIONS for each in section.routes}
    assert routes == {route for route, _ in ROW.findall(TABLE)}


def test_each_row_names_tests_that_exist() -> None:
    for route, said in ROW.findall(TABLE):
        proofs = PROOF.findall(said)
        assert proofs, route
        for file, name in proofs:
            (path,) = [place / file for place in PLACES if (place / file).is_file()]
            assert f"def {name}(" in path.read_text(encoding="utf-8"), f"{route}: {file}::{name}"
