"""`barnabas txn` against a running broker."""

from __future__ import annotations

import json

from barnabas.testing.broker import run_broker
from tests.clients.test_confluent_transactions import TIMEOUT_S, produce, read_all, transactional
from tests.scenario.cli.command import Barnabas
from tests.support.wire import PRODUCE, WireConnection, array, batch, nullable_bytes, string

UNVERIFIED = {"transaction.partition.verification.enable": "false"}
TRANSACTIONAL = 0x10


def leave_hanging(bootstrap: str, topic: str, producer_id: int) -> None:
    """Write as a producer that no coordinator knows: Produce v7, acks=all."""
    records = batch(attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=3, base_sequence=0)
    partition = (0).to_bytes(4) + nullable_bytes(records)
    body = string("nobody") + (-1).to_bytes(2, signed=True) + (10_000).to_bytes(4)
    host, _, port = bootstrap.partition(":")
    with WireConnection(host, int(port)) as connection:
        connection.ask(PRODUCE, 7, body + array([string(topic) + array([partition])]))


def test_transactions_are_looked_at_and_those_that_hang_are_ended() -> None:
    with run_broker(UNVERIFIED) as broker:
        broker.create_topic("sink", partitions=2)
        barnabas = Barnabas(broker.bootstrap)
        producer = transactional(broker.bootstrap, "mine")
        producer.begin_transaction()
        produce(producer, "sink", ["open"], partition=1)
        producer.flush(TIMEOUT_S)
        assert [line.split()[0::2] for line in barnabas("txn", "list").splitlines()[1:]] == [
            ["mine", "Ongoing"]
        ]
        assert barnabas("txn", "list", "--state", "Empty").splitlines()[1:] == []
        (described,) = json.loads(barnabas("txn", "describe", "mine", "--json"))
        assert described["state"] == "Ongoing"
        assert described["partitions"] == [{"topic": "sink", "partition": 1}]
        assert "sink" in barnabas("txn", "describe", "mine")
        assert "nobody" in barnabas("txn", "describe", "nobody", code=4)

        assert json.loads(barnabas("txn", "hanging", "--json")) == [], "one that is known does not hang"
        leave_hanging(broker.bootstrap, "sink", 4_711)
        (hangs,) = json.loads(barnabas("txn", "hanging", "--json"))
        assert (hangs["topic"], hangs["partition"], hangs["start_offset"]) == ("sink", 0, 0)
        assert "4711" in barnabas("txn", "hanging", "sink")
        barnabas("txn", "abort", "sink", "0", "--start-offset", "7", code=4)
        assert "4711" in barnabas("txn", "abort", "sink", "0", "--start-offset", "0")
        assert json.loads(barnabas("txn", "hanging", "--json")) == []
        producer.commit_transaction(TIMEOUT_S)
        assert read_all(broker.bootstrap, "sink", partitions=2) == [[], ["open"]]
