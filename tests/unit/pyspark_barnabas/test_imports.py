"""Every executor imports the connector, so the import stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
import pyspark_barnabas


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
        "import pyspark_barnabas.readers.stream_reader, pyspark_barnabas.writers.sink,"
        " pyspark_barnabas.writers.repartition"
    )
    unwanted = {
        "asyncio",
        "uvloop",
        *(f"barnabas.{name}" for name in ("network", "handlers", "node", "storage")),
    }
    assert unwanted & loaded == set()


def test_a_process_that_is_asked_for_columns_imports_no_arrow() -> None:
    """Spark starts a process for each planning step, and each imports what it needs."""
    asked = "from pyspark_barnabas import DefaultSource; DefaultSource({'subscribe': 't'}).schema()"
    assert {"pyarrow", "numpy", "pandas"} & modules_after(asked) == set()


def test_every_public_name_is_found_where_the_package_says() -> None:
    for name in pyspark_barnabas.__all__:
        assert callable(getattr(pyspark_barnabas, name)), name
