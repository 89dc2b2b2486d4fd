"""The tutorial of docs/TABLES.md: its files and commands, as they stand, lead to what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.broker import run_broker
from tests.support.broker import REPOSITORY
from tests.support.spark import require_spark

PAGE = (REPOSITORY / "docs" / "TABLES.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tutorial_leads_from_an_empty_directory_to_a_queried_table(tmp_path: Path) -> None:
    """But for the installation and the start of the broker, which the test has done."""
    require_spark()
    pytest.importorskip("deltalake")
    pytest.importorskip("polars")
    tutorial = PAGE.partition("**Iceberg**")[0]
    blocks = _BLOCK.findall(tutorial)
    assert [kind for kind, _ in blocks] == ["sh", "sh", "yaml", "sh", "python", "sh", "sh"]
    printed = []
    with run_broker() as broker:
        for kind, text in blocks[1:]:
            if kind == "sh":
                printed.append(run(text, tmp_path, broker.bootstrap))
            else:
                (tmp_path / {"yaml": "orders.yaml", "python": "query.py"}[kind]).write_text(text)
    assert re.findall(r"│ (\w+) +┆ (\d+) ", printed[-2]) == [("ada", "6249"), ("bob", "990")]
    assert re.findall(r"│ (\w+) +┆ (\d+) ", printed[-1]) == [("ada", "6249"), ("bob", "1000")]


def test_the_same_pipeline_with_the_word_iceberg_fills_a_table_that_the_page_reads(tmp_path: Path) -> None:
    require_spark()
    pytest.importorskip("pyiceberg")
    pytest.importorskip("polars")
    before, _, after = PAGE.partition("**Iceberg**")
    _, (_, produce), (_, spec), (_, start), *_ = _BLOCK.findall(before)
    (reading,) = (text for kind, text in _BLOCK.findall(after) if "StaticTable" in text)
    (tmp_path / "orders.yaml").write_text(spec.replace("format: delta", "format: iceberg"))
    (tmp_path / "query.py").write_text(reading)
    with run_broker() as broker:
        printed = run(f"{produce}{start}python query.py\n", tmp_path, broker.bootstrap)
    assert re.findall(r"│ (\d) +┆ (\w+) +┆ (\d+) ", printed) == [
        ("1", "ada", "1250"),
        ("2", "bob", "990"),
        ("3", "ada", "4999"),
    ]
    assert (tmp_path / "lake" / "orders" / "catalog.db").exists()


def run(script: str, directory: Path, bootstrap: str) -> str:
    """Standard output of a block of commands, of which each must succeed."""
    barnabas = directory / "barnabas"
    barnabas.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n')
    barnabas.chmod(0o755)
    python = directory / "python"
    if not python.exists():
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{directory}:{os.environ['PATH']}",
        "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}",
        "BARNABAS_BOOTSTRAP": bootstrap,
        "XDG_STATE_HOME": str(directory / "state"),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        check=False,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
