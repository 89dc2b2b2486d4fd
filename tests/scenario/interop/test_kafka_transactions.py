"""Apache Kafka's own producer, tools and file reader on our transactions.

The Java producer is the one client that speaks transaction version 2, so it says whether that is whole. With
`--broker kafka` the broker is Kafka's own, which shows that the expectations are fair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.test_confluent_transactions import TIMEOUT_S, produce, transactional
from tests.peers.kafka import DUMP_LOG_SEGMENTS, run_kafka_tool
from tests.support.broker import Broker, partition_directory, running
from tests.support.fixtures import chosen_broker, create_topic

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).with_name("Transact.java")
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
SETTINGS = {
    "transaction_state_log_num_partitions": 1,
    "offsets_topic_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
}


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with running(chosen_broker(request.config, tmp_path, **SETTINGS)) as started:
        for name in ("source", "sink"):
            create_topic(started, name)
        yield started


def tool(broker: Broker, *arguments: str) -> str:
    done = run_kafka_tool(TRANSACTIONS_COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_producer_has_an_epoch_for_each_transaction(broker: Broker) -> None:
    done = run_kafka_tool(str(PROGRAM), broker.bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    facts = done.stdout.splitlines()
    kept = "t0, t1, t3, t4, t6, t7"
    assert facts[0] == f"committed [{kept}]"
    assert re.fullmatch("fenced (InvalidProducerEpoch|ProducerFenced)Exception", facts[1])
    assert facts[2:] == [
        "offset 4",
        f"committed [{kept}, out0, out1, out2]",
        "feature 2",
        "state CompleteCommit",
        "listed 1",
    ]
    epoch = int(re.findall(r"\t(\d+)\s*\t", tool(broker, "describe", "--transactional-id", "java"))[1])
    assert epoch > 12, "more than ten transactions, and each has consumed an epoch"


def test_kafkas_tool_finds_an_open_transaction_and_ends_it(broker: Broker) -> None:
    producer = transactional(broker.bootstrap, "open")
    producer.begin_transaction()
    produce(producer, "sink", ["x"])
    producer.flush(TIMEOUT_S)
    assert re.search(r"open\s+\d+\s+\d+\s+Ongoing", tool(broker, "list"))
    assert "sink-0" in tool(broker, "describe", "--transactional-id", "open")
    described = tool(broker, "describe-producers", "--topic", "sink", "--partition", "0")
    assert re.search(r"\d+\s+0\s+-?\d+\s+0\s+\d+\s+0", described), described
    tool(broker, "abort", "--topic", "sink", "--partition", "0", "--start-offset", "0")
    described = tool(broker, "describe-producers", "--topic", "sink", "--partition", "0")
    assert re.search(r"None\s*$", described), described


def test_kafkas_file_reader_understands_the_coordinators_log(broker: Broker) -> None:
    producer = transactional(broker.bootstrap, "read-me")
    producer.begin_transaction()
    produce(producer, "sink", ["x"])
    producer.commit_transaction(TIMEOUT_S)
    (log,) = partition_directory(broker, "__transaction_state").glob("*.log")
    done = run_kafka_tool(DUMP_LOG_SEGMENTS, "--transaction-log-decoder", "--files", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    states = re.findall(r"transactionalId=read-me payload: .*?state=(\w+)", done.stdout)
    if not states:
        states = re.findall(r'"transactionalId":"read-me".*?"transactionStatus":(\d)', done.stdout)
    assert states in (
        ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"],
        ["0", "1", "2", "4"],
    ), done.stdout
