"""Apache Kafka's own consumer and tools, in groups of both protocols, and its decoder on our records.

With `--broker kafka` the broker is Kafka's own, which shows that the expectations are fair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.peers.kafka import DUMP_LOG_SEGMENTS, require_kafka, run_kafka_tool
from tests.support.broker import Broker, partition_directory, running
from tests.support.fixtures import chosen_broker, create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
RECORDS = 40


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    require_kafka()
    directory = tmp_path_factory.mktemp("groups")
    chosen = chosen_broker(request.config, directory, offsets_topic_num_partitions=1)
    with running(chosen):
        create_topic(chosen, "t", 4)
        sender = Producer({"bootstrap.servers": chosen.bootstrap})
        for number in range(RECORDS):
            sender.produce("t", str(number).encode(), partition=number % 4)
        assert sender.flush(60.0) == 0
        for protocol in ("classic", "consumer"):
            assert consume(chosen, protocol) == list(range(RECORDS))
        yield chosen


def consume(broker: Broker, protocol: str) -> list[int]:
    done = run_kafka_tool(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", "t", "--group", f"{protocol}-group"),
        *("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000"),
        *("--consumer-property", f"group.protocol={protocol}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(int(line) for line in done.stdout.splitlines() if line.isdecimal())


def groups_tool(broker: Broker, *arguments: str) -> str:
    done = run_kafka_tool(CONSUMER_GROUPS, "--bootstrap-server", broker.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_both_groups_are_listed(broker: Broker) -> None:
    listed = groups_tool(broker, "--list", "--state", "--type")
    assert re.search(r"classic-group +Classic +Empty", listed)
    assert re.search(r"consumer-group +Consumer +Empty", listed)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_described_and_reset(broker: Broker, protocol: str) -> None:
    group = f"{protocol}-group"
    described = groups_tool(broker, "--describe", "--group", group)
    assert len(re.findall(rf"{group} +t +\d +10 +10 +0 ", described)) == 4, described
    groups_tool(broker, "--reset-offsets", "--group", group, "--topic", "t", "--to-offset", "3", "--execute")
    described = groups_tool(broker, "--describe", "--group", group)
    assert len(re.findall(rf"{group} +t +\d +3 +10 +7 ", described)) == 4, described


def test_kafkas_decoder_reads_every_record(broker: Broker) -> None:
    log = min(partition_directory(broker, "__consumer_offsets").glob("*.log"))
    done = run_kafka_tool(DUMP_LOG_SEGMENTS, "--offsets-decoder", "--files", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = set(re.findall(r'key: \{"type":"(\d+)"', done.stdout))
    assert {"1", "2", "3", "5", "6", "7", "8"} <= kinds
    records = [line for line in done.stdout.splitlines() if line.startswith("| offset:")]
    assert all('key: {"type":' in line for line in records)
    assert any('"protocol":"range"' in line and '"generation":1' in line for line in records)
