"""Examples of docs/CLIENT.md run as they are shown, and its tables are those of the rows."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.support.pages import Shell, blocks

from barnabas.client.admin.admin import Admin
from barnabas.client.config.render_docs import rendered
from barnabas.client.sync.loop_thread import SHARED

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "CLIENT.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
async def test_an_example_runs_as_it_is_shown(address: str, number: int, tmp_path: Path) -> None:
    """An example is a program with `await` at its top level."""
    source = tmp_path / "example.py"
    source.write_text(EXAMPLES[number], encoding="utf-8")  # FastStream reads the file of its caller
    code = compile(EXAMPLES[number], source, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"address": address}
    awaited = eval(code, names)
    if inspect.isawaitable(awaited):
        await awaited
    SHARED.stop()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_strict_type_checker_accepts_the_examples(tmp_path: Path) -> None:
    """As in an application: mypy sees the library from outside, without the settings of this repository."""
    pytest.importorskip("faststream")
    for number, code in enumerate(EXAMPLES):
        body = code if "await " not in code else f"async def page() -> None:\n{textwrap.indent(code, '    ')}"
        (tmp_path / f"example_{number}.py").write_text(
            f'address = "127.0.0.1:9092"\n\n{body}', encoding="utf-8"
        )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "."],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_query_of_the_terminal_prints_rows(address: str, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (block,) = blocks("docs/CLIENT.md", "sh")
    shell = Shell(tmp_path, address)
    shell.run("printf 'a\\nb\\n' | barnabas produce readings")
    assert "count" in shell.run(block.text)


def test_the_tables_of_settings_are_those_of_the_rows() -> None:
    """After a change: python -m barnabas.client.config.render_docs docs/CLIENT.md"""
    assert rendered(TEXT) == TEXT


def test_every_method_of_the_admin_client_is_listed() -> None:
    methods = {name for name, _ in inspect.getmembers(Admin, inspect.iscoroutinefunction)}
    listed = set(re.findall(r"`(\w+)`", TEXT.split("## Administration")[1].split("## Errors")[0]))
    assert {name for name in methods if not name.startswith("_")} - {"close"} <= listed
