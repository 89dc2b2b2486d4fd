"""`barnabas record`: what it refuses before it touches the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli


@pytest.mark.parametrize(
    "options", [("--to", "localhost"), ("--to", "127.0.0.1:9092", "--listen", "9092")], ids=str
)
def test_wrong_usage_keeps_an_older_recording(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "recording"
    path.write_text("older")
    found = CliRunner().invoke(cli, ["record", str(path), *options])
    assert found.exit_code == 2
    assert path.read_text() == "older"
