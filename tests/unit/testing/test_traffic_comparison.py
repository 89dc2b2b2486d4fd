"""Differences of recorded and replayed answers, as a reader of the report sees them."""

from __future__ import annotations

import pytest

from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.schema.message import Message
from barnabas.testing.traffic.comparison import SHOWN_CHARS_MAX, Learned, compare
from tests.support.wire import batch


def shown(recorded: Message, replayed: Message) -> list[str]:
    return [str(each) for each in compare(recorded, replayed, Learned())]


def topics(*names: str, partitions: int = 1, internal: bool = False) -> MetadataResponse:
    rows = [MetadataResponsePartition(partition_index=index) for index in range(partitions)]
    return MetadataResponse(
        topics=[MetadataResponseTopic(name=name, is_internal=internal, partitions=rows) for name in names]
    )


def fetched(*values: bytes | None) -> FetchResponse:
    records = batch(values) if values else b""
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=records)])])


def test_elements_are_named_and_not_written_out() -> None:
    assert shown(topics("orders", partitions=2), topics("orders")) == [
        "topics[orders].partitions: recorded 2 (0, 1), replayed 1 (0)"
    ]
    assert shown(topics("b", "a"), topics("a")) == ["topics: recorded 2 (a, b), replayed 1 (a)"]
    assert shown(topics(), topics("a")) == ["topics: recorded none, replayed 1 (a)"]


def test_partitions_of_internal_topics_are_not_compared() -> None:
    offsets = "__consumer_offsets"
    assert shown(topics(offsets, partitions=50, internal=True), topics(offsets, internal=True)) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"paid", "paid"),
        ("bezahlt für zwei".encode(), "bezahlt für zwei"),
        (b"\xff\x00", "0xff00"),
        (b"a\nb", "0x610a62"),
        (None, "null"),
    ],
)
def test_a_record_shows_its_value_as_text_or_as_digits(value: bytes | None, text: str) -> None:
    assert shown(fetched(value), fetched()) == [
        f"responses[0].partitions[0].records: recorded 1 (offset 0 {text}), replayed none"
    ]


def test_what_is_shown_is_bounded() -> None:
    (line,) = shown(fetched(*["ü".encode() * 50_000] * 2), fetched())
    assert "üüü" in line
    assert len(line) < SHOWN_CHARS_MAX + 100
    (line,) = shown(topics(*(f"topic-{number}" for number in range(5_000))), topics())
    assert line.startswith("topics: recorded 5000 (topic-0, ")
    assert len(line) < SHOWN_CHARS_MAX + 100
