"""Kafka's own command-line tools by the names of their classes, and how a test runs one."""

from __future__ import annotations

from tests.peers.kafka import run_kafka_tool

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
DELEGATION_TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"


def tool(main_class: str, *arguments: str, given: str = "", exit_code: int = 0) -> str:
    done = run_kafka_tool(main_class, *arguments, given=given)
    assert done.returncode == exit_code, f"exit code {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def produce(bootstrap: str, topic: str, lines: str, *more: str) -> None:
    tool(CONSOLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *more, given=lines)
