"""Every executor imports the connector, so the import stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")


def modules_after(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_the_connector_brings_no_event_loop_and_nothing_of_a_broker() -> None:
    loaded = modules_after(
        "import pyspark_barnabas.stream_reader, pyspark_barnabas.sink, pyspark_barnabas.arrange"
    )
    unwanted = {
        "asyncio",
        "uvloop",
        *(f"barnabas.{name}" for name in ("network", "handlers", "node", "storage")),
    }
    assert unwanted & loaded == set()


def test_a_process_that_is_asked_for_columns_imports_no_arrow() -> None:
    """Spark has a process for each question, and every one of them imports what it takes to answer."""
    asked = "from pyspark_barnabas import DefaultSource; DefaultSource({'subscribe': 't'}).schema()"
    assert {"pyarrow", "numpy", "pandas"} & modules_after(asked) == set()
