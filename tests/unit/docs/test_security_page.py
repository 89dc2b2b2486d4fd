"""Tables and tests in docs/SECURITY.md: rendered from the code, and existing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.docs.test_features_page import functions_of

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "SECURITY.md").read_text(encoding="utf-8")


def test_the_table_of_rights_is_rendered_from_the_code() -> None:
    command = [sys.executable, "tools/render_security.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "proof", sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE))), ids="::".join
)
def test_a_test_that_is_named_exists(proof: tuple[str, str]) -> None:
    path, name = proof
    assert name in functions_of(path), f"{path} has no {name}"
