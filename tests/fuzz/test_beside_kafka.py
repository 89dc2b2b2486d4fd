"""The same drawn requests get the same error codes from Apache Kafka, where it can be run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.fuzz.beside_kafka import Broker, differences
from tests.peers import kafka
from tests.support.broker import BarnabasBroker, running

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(600)]

SETTINGS: dict[str, object] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
ASSIGN_AT_ONCE: dict[str, object] = {
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.assignor.offload.enable": "false",
}
"""Kafka 4.3 assigns once a second and in a thread, so the epochs of its members would depend on the time."""
REQUESTS = {1: 400, 6: 1_000, 9: 1_000, 11: 1_000}
"""By seed. All but the first found a difference once."""


@pytest.mark.parametrize("seed", REQUESTS)
def test_both_brokers_answer_with_the_same_codes(tmp_path: Path, seed: int) -> None:
    kafka.require_kafka()
    peer = kafka.KafkaBroker(tmp_path / "kafka", settings={**SETTINGS, **ASSIGN_AT_ONCE})
    peer.launch()
    try:
        with running(BarnabasBroker(tmp_path / "data", settings={"broker.id": 1, **SETTINGS})) as ours:
            peer.wait_ready()
            with closing(Broker(ours.port)) as here, closing(Broker(peer.port)) as there:
                here.prepare()
                there.prepare()
                found = [str(each) for each in differences(here, there, seed, REQUESTS[seed])]
            assert not found, f"{len(found)} differences:\n" + "\n".join(found[:20])
    finally:
        peer.kill()
