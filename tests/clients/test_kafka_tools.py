"""Kafka's own command-line tools, from its jars: what operators' scripts call.

`--broker kafka` shows what the tools say to Kafka itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.clients.features import CONSUMER_GROUP_HEARTBEAT, JOIN_GROUP, advertised_apis
from tests.clients.matrix import TOOLS
from tests.clients.tools import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSUMER_GROUPS,
    CONSUMER_PERFORMANCE,
    DELETE_RECORDS,
    GET_OFFSETS,
    LEADER_ELECTION,
    LOG_DIRS,
    PRODUCER_PERFORMANCE,
    REASSIGN_PARTITIONS,
    TOPICS,
    VERIFIABLE_PRODUCER,
    produce,
    tool,
)
from tests.peers.kafka import DUMP_LOG_SEGMENTS, require_kafka
from tests.support.broker import Broker, partition_directory
from tests.support.fixtures import TopicFactory

pytestmark = [
    pytest.mark.client(TOOLS),
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.compatibility,
    pytest.mark.xdist_group("kafka-tools"),
]


@pytest.fixture(autouse=True)
def _kafka() -> None:
    require_kafka()


@pytest.mark.feature("kafka-topics")
def test_topics_are_created_altered_described_and_deleted(bootstrap: str) -> None:
    def topics(*arguments: str) -> str:
        return tool(TOPICS, "--bootstrap-server", bootstrap, *arguments)

    settings = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=99999")
    assert "Created topic tools-life" in topics("--create", "--topic", "tools-life", *settings)
    assert "tools-life" in topics("--list").split()
    topics("--alter", "--topic", "tools-life", "--partitions", "3")
    described = topics("--describe", "--topic", "tools-life")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=99999", described)
    assert len(re.findall(r"Partition: \d\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    topics("--delete", "--topic", "tools-life")
    assert "tools-life" not in topics("--list").split()


@pytest.mark.feature("kafka-configs")
def test_configs_are_set_described_and_removed(bootstrap: str, topic: str) -> None:
    def configs(*arguments: str) -> str:
        return tool(
            CONFIGS,
            "--bootstrap-server",
            bootstrap,
            "--entity-type",
            "topics",
            "--entity-name",
            topic,
            *arguments,
        )

    configs("--alter", "--add-config", "retention.ms=77777,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "retention.ms=77777" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", "--delete-config", "retention.ms")
    assert "retention.ms=77777" not in configs("--describe")
    assert "min.insync.replicas=1" in configs("--describe", "--all")


@pytest.mark.feature("kafka-configs")
def test_configs_of_a_group_are_set_described_and_removed(bootstrap: str) -> None:
    def configs(*arguments: str) -> str:
        where = ("--bootstrap-server", bootstrap, "--entity-type", "groups")
        return tool(CONFIGS, *where, *arguments)

    group = ("--entity-name", "tools-group")
    assert "consumer.session.timeout.ms" not in configs(*group, "--describe")
    configs(*group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in configs(*group, "--describe")
    assert "Dynamic configs for group tools-group are:" in configs("--describe")
    assert "consumer.heartbeat.interval.ms=5000" in configs(*group, "--describe", "--all")
    refused = (*group, "--alter", "--add-config", "no.such.setting=1")
    tool(CONFIGS, "--bootstrap-server", bootstrap, "--entity-type", "groups", *refused, exit_code=1)
    configs(*group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms" not in configs(*group, "--describe")


@pytest.mark.feature("kafka-configs")
def test_the_brokers_own_configs_are_described(bootstrap: str) -> None:
    brokers = ("--bootstrap-server", bootstrap, "--entity-type", "brokers")
    default = tool(CONFIGS, *brokers, "--entity-default", "--describe")
    assert "Default configs for brokers in the cluster" in default


@pytest.mark.feature("kafka-console-producer", "kafka-console-consumer")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_lines_go_there_and_back_by_partition_and_offset(bootstrap: str, topic: str, codec: str) -> None:
    separated = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    produce(bootstrap, topic, "a:1\nb:2\nc:3\n", "--compression-codec", codec, *separated)
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "1")
    shown = (
        "--formatter-property",
        "print.key=true",
        "--formatter-property",
        "print.offset=true",
        "--max-messages",
        "2",
    )
    assert tool(CONSOLE_CONSUMER, *where, *shown) == "Offset:1\tb\t2\nOffset:2\tc\t3\n"


@pytest.mark.feature("kafka-get-offsets")
def test_offsets_are_got_by_every_time(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, "a\nb\nc\n")

    def offset(time: str) -> str:
        return tool(GET_OFFSETS, "--bootstrap-server", bootstrap, "--topic", topic, "--time", time).strip()

    assert offset("earliest") == f"{topic}:0:0"
    assert offset("latest") == f"{topic}:0:3"
    assert offset("max-timestamp").startswith(f"{topic}:0:")
    assert offset("1000") == f"{topic}:0:0"


@pytest.mark.feature("kafka-log-dirs")
def test_log_directories_say_how_large_a_partition_is(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, "x" * 500 + "\n")
    said = tool(LOG_DIRS, "--bootstrap-server", bootstrap, "--describe", "--topic-list", topic)
    (line,) = [line for line in said.splitlines() if line.startswith("{")]
    (broker,) = json.loads(line)["brokers"]
    (directory,) = broker["logDirs"]
    (partition,) = directory["partitions"]
    assert directory["error"] is None
    assert (partition["partition"], partition["offsetLag"]) == (f"{topic}-0", 0)
    assert partition["size"] > 500


@pytest.mark.feature("kafka-dump-log")
def test_the_log_of_a_running_broker_is_dumped(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap, topic, "first\nsecond\n")
    segment = partition_directory(broker, topic) / f"{0:020d}.log"
    dumped = tool(DUMP_LOG_SEGMENTS, "--files", str(segment), "--print-data-log", "--deep-iteration")
    assert re.findall(r"\| offset: (\d+) .* payload: (\w+)", dumped) == [("0", "first"), ("1", "second")]


@pytest.mark.feature("kafka-delete-records")
def test_records_are_deleted_by_a_file_of_offsets(bootstrap: str, topic: str, tmp_path: Path) -> None:
    produce(bootstrap, topic, "a\nb\nc\n")
    wanted = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 2}]
    wanted.write_text(json.dumps({"partitions": partitions, "version": 1}))
    said = tool(DELETE_RECORDS, "--bootstrap-server", bootstrap, "--offset-json-file", str(wanted))
    assert re.search(rf"partition: {re.escape(topic)}-0\s+low_watermark: 2", said)


@pytest.mark.feature("kafka-verifiable-producer")
def test_the_verifiable_producer_is_acknowledged_everything(bootstrap: str, topic: str) -> None:
    said = tool(
        VERIFIABLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, "--max-messages", "200"
    )
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (summary,) = [event for event in events if event["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (200, 200)
    assert sorted(e["offset"] for e in events if e["name"] == "producer_send_success") == list(range(200))


@pytest.mark.feature("kafka-producer-perf-test")
def test_the_producers_measure_runs_to_its_end(bootstrap: str, topic: str) -> None:
    work = ("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    said = tool(PRODUCER_PERFORMANCE, *work, "--producer-props", f"bootstrap.servers={bootstrap}")
    assert "2000 records sent" in said


@pytest.mark.feature("kafka-consumer-perf-test")
def test_the_consumers_measure_reads_everything(broker: Broker, topic: str) -> None:
    bootstrap = broker.bootstrap
    produce(bootstrap, topic, "line\n" * 100)
    work = ("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "100", "--timeout", "20000")
    needs_groups(broker)
    said = tool(CONSUMER_PERFORMANCE, *work)
    assert re.search(r", 100, ", said), said


@pytest.mark.feature("kafka-console-consumer (group)")
def test_a_console_consumer_joins_a_group(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap, topic, "a\nb\n")
    needs_groups(broker)
    where = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", topic, "--from-beginning")
    assert tool(CONSOLE_CONSUMER, *where, "--max-messages", "2") == "a\nb\n"


@pytest.mark.feature("kafka-consumer-groups")
def test_groups_are_listed_and_described(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap, topic, "a\nb\n")
    needs_groups(broker)
    at = ("--bootstrap-server", broker.bootstrap)
    tool(CONSOLE_CONSUMER, *at, "--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "2")
    assert topic in tool(CONSUMER_GROUPS, *at, "--list").split()
    described = tool(CONSUMER_GROUPS, *at, "--describe", "--group", topic)
    assert re.search(rf"{re.escape(topic)}\s+{re.escape(topic)}\s+0\s+2\s+2\s+0", described), described


def needs_groups(broker: Broker) -> None:
    if not {JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT} & advertised_apis(broker.host, broker.port):
        pytest.xfail("the broker does not advertise groups")


@pytest.mark.feature("kafka-broker-api-versions")
def test_the_advertised_versions_are_read_by_the_newest_client(bootstrap: str) -> None:
    said = tool(API_VERSIONS, "--bootstrap-server", bootstrap)
    assert said.startswith(f"{bootstrap} (id: ")
    produce_row, fetch_row = re.search(r"Produce\(0\): (.*)", said), re.search(r"Fetch\(1\): (.*)", said)
    assert produce_row is not None
    assert "usable: 13" in produce_row[1]
    assert fetch_row is not None
    assert "usable: 18" in fetch_row[1]


@pytest.mark.feature("kafka-cluster")
def test_the_cluster_has_an_id(bootstrap: str) -> None:
    assert re.search(r"Cluster ID: \S{22}", tool(CLUSTER, "cluster-id", "--bootstrap-server", bootstrap))


@pytest.mark.feature("kafka-leader-election")
def test_a_preferred_leader_needs_no_election(bootstrap: str, topic: str) -> None:
    chosen = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    said = tool(LEADER_ELECTION, "--bootstrap-server", bootstrap, *chosen)
    assert f"Valid replica already elected for partitions {topic}-0" in said


@pytest.mark.feature("kafka-reassign-partitions")
def test_no_reassignment_is_under_way(bootstrap: str) -> None:
    assert "No partition reassignments found." in tool(
        REASSIGN_PARTITIONS, "--bootstrap-server", bootstrap, "--list"
    )


@pytest.mark.feature("kafka-reassign-partitions")
def test_a_plan_is_made_executed_and_verified(
    bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    described = tool(TOPICS, "--bootstrap-server", bootstrap, "--describe", "--topic", topic)
    node = re.findall(r"Leader: (\d+)", described)[0]
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    source = ("--topics-to-move-json-file", str(wanted), "--broker-list", node)
    said = tool(REASSIGN_PARTITIONS, "--bootstrap-server", bootstrap, *source, "--generate")
    plan = tmp_path / "plan.json"
    plan.write_text([line for line in said.splitlines() if line.startswith("{")][-1])
    at = ("--bootstrap-server", bootstrap, "--reassignment-json-file", str(plan))
    assert "Successfully started" in tool(REASSIGN_PARTITIONS, *at, "--execute")
    assert f"Reassignment of partition {topic}-0 is completed" in tool(REASSIGN_PARTITIONS, *at, "--verify")
