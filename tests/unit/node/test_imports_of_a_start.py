"""A start imports what it needs; the other handlers come soon after."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import barnabas

SCRIPT = """
import asyncio, json, sys
from barnabas.node import main
from barnabas.requests.served_versions import SERVED_VERSIONS

def imported():
    return [key.name for key in SERVED_VERSIONS if "barnabas.handlers." + key.name.lower() in sys.modules]

before = imported()
main.IMPORT_PAUSE_S = 0
asyncio.run(main._import_handlers())
print(json.dumps([before, imported(), len(SERVED_VERSIONS)]))
"""

LATER_SCRIPT = """
import asyncio, json, sys
from barnabas.cli.commands.cluster import start
from barnabas.node import main

seldom = ("barnabas.node.metrics_endpoint", "barnabas.network.http.server", "barnabas.node.inspection")
before = [name for name in (*main.LATER, *seldom) if name in sys.modules]
main.IMPORT_PAUSE_S = 0
asyncio.run(main._import_handlers())
missing = [name for name in main.LATER if name not in sys.modules]
print(json.dumps([before, missing, [name for name in sys.modules if name.startswith("barnabas.testing")]]))
"""


def test_handlers_are_imported_when_the_broker_serves() -> None:
    source = str(Path(barnabas.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={"PYTHONPATH": source}, capture_output=True, text=True, check=True
    )
    before, after, served = json.loads(done.stdout)
    assert "JOIN_GROUP" not in before
    assert "FETCH" not in before
    assert len(after) == served


def test_what_a_start_seldom_needs_is_imported_after_it() -> None:
    source = str(Path(barnabas.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", LATER_SCRIPT],
        env={"PYTHONPATH": source}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    too_early, missing, of_tests = json.loads(done.stdout)
    assert too_early == []
    assert missing == []
    assert of_tests == [], "a broker outside of tests has nothing of the test kit"
