"""`barnabas pipeline` where only the broker's packages are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ABSENT = """
import sys
for name in ("numpy", "pandas", "pyarrow", "pyspark", "py4j", "starlette", "pg8000", "fastavro"):
    sys.modules[name] = None
from barnabas.cli.main import main
main()
"""


def barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ABSENT, *arguments],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src"), "LAKE": "lake"},
        timeout=60,
        check=False,
    )


def test_every_example_is_validated() -> None:
    examples = sorted(map(str, (ROOT / "examples").glob("*.yaml")))
    ended = barnabas("pipeline", "validate", *examples)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert len(lines) == len(examples) > 3
    assert all(" is valid: " in line for line in lines)


@pytest.mark.parametrize("command", [["run", str(ROOT / "examples" / "clean_clicks.yaml")], ["serve"]])
def test_the_missing_packages_are_named(command: list[str]) -> None:
    ended = barnabas("pipeline", *command)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("barnabas: pipelines need more than a broker: pip install ")
