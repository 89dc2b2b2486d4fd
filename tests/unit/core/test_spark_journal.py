"""Spark's journal entry of a micro-batch, read back."""

from __future__ import annotations

from barnabas.pipelines.state.checkpoint_format import source_offsets, source_topic_ids

TEXT = 'v1\n{"batchWatermarkMs":0}\n{"clicks":{"0":5,"1":7}}\n-\n{"logOffset":3}\n12\n'


def test_sources_whose_offsets_are_no_object_are_passed_over() -> None:
    assert list(source_offsets(TEXT)) == [{"clicks": {"0": 5, "1": 7}}, {"logOffset": 3}]
    assert list(source_offsets("")) == []


def test_topic_ids_stand_apart_from_the_offsets() -> None:
    text = TEXT.replace('"1":7}}', '"1":7},"@topic_ids":{"clicks":"x1"}}')
    assert list(source_offsets(text)) == [{"clicks": {"0": 5, "1": 7}}, {"logOffset": 3}]
    assert source_topic_ids(text) == {"clicks": "x1"}
    assert source_topic_ids(TEXT) == {}, "as checkpoints of earlier versions are"
