"""A client from before record batches: its messages are converted up, its answers down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = "kafka-python==1.4.7"
PROGRAM = Path(__file__).parent / "kafka_python_1" / "program.py"

EXPECTED = [[i, f"k{i}", f"v{i}" if i % 7 else None] for i in range(5, 20)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The old library in a directory of its own: it cannot live beside the new one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "barnabas" / "clients"
    target = cache / LIBRARY.replace("==", "-")
    if not (target / "kafka").is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        fetched = tmp_path_factory.mktemp("library") / "lib"
        done = subprocess.run([*install, str(fetched), LIBRARY], check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{LIBRARY} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
        return fetched
    return target


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="kafka-python 1.x does not run on Python 3.12")
def test_old_protocols_write_and_read_their_own_formats(library: Path, bootstrap: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(library), bootstrap],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 8
    for answer in answers:
        assert answer["offsets"] == list(range(20)), answer
        assert answer["read"] == EXPECTED, answer
        assert answer["committed"] == (7 if answer["version"] != [0, 11] else None), answer
