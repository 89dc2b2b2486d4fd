"""`barnabas pipeline` where only the broker's packages are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPARK = ("numpy", "pandas", "pyarrow", "pyspark", "py4j")
OTHERS = ("starlette", "pg8000", "fastavro")
WITHOUT = """
import sys
for name in {absent}:
    sys.modules[name] = None
from barnabas.cli.main import main
main()
"""


def barnabas(
    *arguments: str, absent: tuple[str, ...] = (*SPARK, *OTHERS)
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent), *arguments],
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


@pytest.mark.parametrize("absent", [(*SPARK, *OTHERS), SPARK])
@pytest.mark.parametrize("command", [["run", str(ROOT / "examples" / "clean_clicks.yaml")], ["serve"]])
def test_the_missing_packages_are_named(command: list[str], absent: tuple[str, ...]) -> None:
    """The web console's packages are those of the service, which alone would start and run nothing."""
    ended = barnabas("pipeline", *command, absent=absent)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("barnabas: pipelines need more than a broker: pip install ")


@pytest.mark.parametrize("command", ["validate", "start", "run"])
def test_a_file_that_is_no_text_is_refused_in_a_line(tmp_path: Path, command: str) -> None:
    file = tmp_path / "picture.yaml"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    ended = barnabas("pipeline", command, str(file))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert (
        ended.stderr.removeprefix("barnabas: ") == f"{file} is not a pipeline's file: it is not UTF-8 text\n"
    )
