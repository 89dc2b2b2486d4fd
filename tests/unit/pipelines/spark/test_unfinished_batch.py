from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.recovery.unfinished_batch import _is_whole_commit, _is_whole_plan, _with_offsets

COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
PLAN = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"s":{"0":5,"1":7}}'


def test_a_file_truncated_anywhere_is_not_whole() -> None:
    assert _is_whole_commit(COMMIT)
    assert not any(_is_whole_commit(COMMIT[:size]) for size in range(len(COMMIT)))
    assert _is_whole_plan(PLAN)
    assert _is_whole_plan(f"{PLAN}\n-")
    assert not any(_is_whole_plan(PLAN[:size]) for size in range(len(PLAN)))
    assert not _is_whole_plan("\0" * len(PLAN))


def test_offsets_are_made_again_from_those_of_the_group() -> None:
    made = _with_offsets(PLAN, {TopicPartition("s", 1): 9, TopicPartition("other", 0): 1})
    assert made is not None
    assert made.splitlines()[:2] == PLAN.splitlines()[:2]
    assert json.loads(made.splitlines()[2]) == {"s": {"0": 5, "1": 9}}
    assert _with_offsets(f"{PLAN}\n-", {}) is None
