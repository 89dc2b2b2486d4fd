"""Reference pages of docs/: rendered from the code, with examples that are valid."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import Kind
from barnabas.pipelines.spec.options.values import convert
from barnabas.pipelines.spec.validation import load_document

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLES = runpy.run_path(str(REPOSITORY / "tools" / "pipeline_examples.py"))
PLUGINS: dict[tuple[str, str], Any] = EXAMPLES["PLUGINS"]
SOURCE = {"type": "topic", "topics": ["clicks"], "schema": EXAMPLES["SCHEMA"]}
EVERY = [(role, name) for role, plugins in CATALOGUE.items() for name in plugins]


def test_the_pages_are_rendered_from_the_code() -> None:
    pytest.importorskip("pyspark", reason="Spark is not installed")
    command = [sys.executable, "tools/render_reference.py", "--check"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("role", "name"), EVERY, ids="-".join)
def test_the_example_of_a_part_is_valid(role: str, name: str) -> None:
    part = PLUGINS[role, name]
    document: dict[str, Any] = {"name": "p", "source": SOURCE, "sink": {"type": "topic", "topic": "out"}}
    if role == "transform":
        document["transforms"] = [part]
    else:
        document[role] = part
        if name == "mirror":
            document["source"] = {**SOURCE, "bootstrap": "east:9092", "schema": None, "format": "raw"}
    spec = load_document(document)
    loaded = spec.transforms[0] if role == "transform" else getattr(spec, role)
    assert loaded.type == name


@pytest.mark.parametrize(("role", "name"), EVERY, ids="-".join)
def test_the_example_of_an_option_is_a_value_of_its_kind(role: str, name: str) -> None:
    for row in CATALOGUE[role][name].options:
        example = EXAMPLES["example_of"](name, row)
        if row.kind in (Kind.PART, Kind.SECTION):
            continue
        converted, fits = convert(row, example)
        assert fits, f"{row.name}: {example!r} is not {row.expected}"
        assert row.secret or row.check is None or row.check(converted) is None, row.name
