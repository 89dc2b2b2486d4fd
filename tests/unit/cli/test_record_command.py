"""`barnabas record`: what it refuses before it touches the file."""

from __future__ import annotations

import socket
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


def test_a_taken_address_is_named_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = ("--to", "127.0.0.1:9092", "--listen", address)
        found = CliRunner().invoke(cli, ["record", str(tmp_path / "recording"), *options])
    assert (found.exit_code, found.output) == (
        1,
        f"barnabas: cannot record on {address}: Address already in use\n",
    )
