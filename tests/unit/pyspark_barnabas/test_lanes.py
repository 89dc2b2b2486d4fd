"""Positions of a lane's batches, in the order in which they must be read back."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.ids import TopicPartition
from pyspark_barnabas.produce.lanes import Stretch, Written
from pyspark_barnabas.produce.producer import Outgoing

TOPIC_PARTITION = TopicPartition("topic", 0)


def noted(*acknowledged: tuple[int, int]) -> list[Stretch]:
    """State after acknowledgements of (offset, number of records)."""
    written = Written(7, 0)
    for base_offset, record_count in acknowledged:
        written.note(Outgoing(TOPIC_PARTITION, 0, bytearray(), record_count), base_offset)
    return written.stretches[TOPIC_PARTITION]


def test_batches_behind_each_other_are_one_stretch() -> None:
    assert noted((5, 2), (7, 3), (20, 1)) == [Stretch(5, 5), Stretch(20, 1)]


def test_a_batch_whose_answer_got_lost_is_acknowledged_after_its_successors() -> None:
    """It is in the log before them all the same, as its sequence numbers are."""
    assert noted((7, 3), (20, 1), (5, 2)) == [Stretch(5, 2), Stretch(7, 3), Stretch(20, 1)]
    assert noted((5, 2), (20, 1), (7, 3)) == [Stretch(5, 5), Stretch(20, 1)]


def test_a_batch_without_a_known_offset_stays_in_the_list() -> None:
    assert Stretch(-1, 2) in noted((5, 1), (-1, 2), (8, 1))
