"""What Spark wrote before a micro-batch, read back."""

from __future__ import annotations

from barnabas.core.spark_journal import source_offsets

TEXT = 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":5,"1":7}}\n-\n{"logOffset":3}\n12\n'


def test_sources_whose_offsets_are_no_object_are_passed_over() -> None:
    assert list(source_offsets(TEXT)) == [{"clicks": {"0": 5, "1": 7}}, {"logOffset": 3}]
    assert list(source_offsets("")) == []
