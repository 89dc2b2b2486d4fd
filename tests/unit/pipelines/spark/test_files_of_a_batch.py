"""Number of files of a micro-batch, by its records."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from barnabas.pipelines.spark.sinks.files import FILES_MAX, files_of


@pytest.mark.parametrize(
    ("records", "files"), [(0, 1), (99_999, 1), (100_000, 2), (1_000_000, 11), (2**63 - 1, FILES_MAX)]
)
def test_files_grow_with_records_up_to_a_bound(records: int, files: int) -> None:
    assert files_of(records) == files
    assert files < 2**31, "Spark takes an int"
