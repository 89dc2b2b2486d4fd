"""Pipeline specs in README.md and docs/: whole ones are valid, parts of one are valid parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.spec.validation import load
from barnabas.pipelines.spec.yaml_source import Located, read_yaml

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = ("README.md", "docs/PIPELINES.md", "docs/SECURITY.md", "docs/SPARK.md", "docs/TABLES.md")
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = [
    pytest.param(block, id=f"{name}-{number}")
    for name in PAGES
    for number, block in enumerate(BLOCK.findall((REPOSITORY / name).read_text(encoding="utf-8")))
]
WHOLE: dict[str, Any] = {
    "name": "shown",
    "source": {"type": "topic", "topics": ["clicks"]},
    "sink": {"type": "topic", "topic": "shown"},
}


@pytest.mark.parametrize("block", SHOWN)
def test_a_spec_that_is_shown_is_valid(block: str) -> None:
    document = read_yaml(block).document
    assert isinstance(document, dict)
    spec = load(Located({**WHOLE, **document}, "shown"))
    assert spec.name == document.get("name", "shown")


def test_specs_are_found() -> None:
    assert len(SHOWN) > 4
