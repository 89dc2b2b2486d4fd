"""Replays of recordings whose clients sent nonsense: the very reports that are worth replaying."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.schema.headers import encode_request
from barnabas.testing.broker import run_broker
from barnabas.testing.traffic.frames import joined
from barnabas.testing.traffic.replay import replay


@pytest.mark.parametrize(
    "records", [b"\0" * 61, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 60], ids=["magic 0", "length 2^31"]
)
def test_a_corrupt_batch_is_replayed_as_it_was(tmp_path: Path, records: bytes) -> None:
    partition = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(name="orders", partition_data=[partition])],
    )
    frame = joined(encode_request(ApiKey.PRODUCE, 9, 1, "client", request))
    path = tmp_path / "recording"
    place = {"connection": 1, "broker": 0, "at_ms": 0}
    sent = {**place, "request": base64.b64encode(frame).decode()}
    answered = {**place, "answer": ""}  # the replay waits for an answer, and has nothing to compare
    lines = [{"barnabas": "recording", "format": 1}, sent, answered]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    with run_broker() as broker:
        broker.create_topic("orders")
        report = replay(path, broker.bootstrap)
        assert [each.api for each in broker.requests("Produce")] == ["Produce"]
    assert (report.requests, report.differences) == (1, [])
