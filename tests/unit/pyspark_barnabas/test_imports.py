"""Every executor imports the connector, so the import stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")


def test_the_connector_brings_no_event_loop_and_nothing_of_a_broker() -> None:
    program = "import sys, pyspark_barnabas; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    unwanted = {
        "asyncio",
        "uvloop",
        *(f"barnabas.{name}" for name in ("network", "handlers", "node", "storage")),
    }
    assert unwanted & set(done.stdout.split()) == set()
