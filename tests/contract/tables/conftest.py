"""A directory for a table in each format, and what its readers find."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.table_reading import Rows, read_rows

pytest.importorskip("pyarrow", reason="PyArrow is not installed")


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return tmp_path / "orders"


@pytest.fixture
def rows(kind: str, lake: Path) -> Callable[[], Rows]:
    """Rows that readers find now, by id."""
    return lambda: sorted(read_rows(kind, lake), key=lambda row: (row["id"], row["batch"]))
