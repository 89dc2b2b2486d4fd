"""docs/METRICS.md: every metric of a broker and of the pipeline service, read from the source.

python tools/render_metrics.py          # writes the page
python tools/render_metrics.py --check  # fails if the page differs

A metric is registered by `counter`, `gauge`, `histogram` or `samples` of a registry, with its name and its
sentence. Where a loop or a function registers several, the names and sentences are in a table or in the calls
of the function; the labels are those of the one registration.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas.core.reporting.metrics import DROPPED, SERIES_MAX

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = REPOSITORY / "src"
PAGE = REPOSITORY / "docs" / "METRICS.md"
CLIENT = "client"
"""A package whose metrics no page serves: an application reads them from its own client."""
KINDS = ("counter", "gauge", "histogram", "samples")
NAME = re.compile(r"(kafka|barnabas|process|python)(_[a-z0-9]+)+")

SECTIONS = (
    ("Requests", ("requests", "quota", "purgatory")),
    ("Topics and replicas", ("replication",)),
    ("Logs", ("storage",)),
    ("Groups and transactions", ("coordinator",)),
    ("Clients", ("telemetry",)),
    ("Controller", ("controller",)),
    ("Coordination store", ("cluster",)),
    ("Network and security", ("network", "security")),
    ("Broker and process", ("node", "core")),
    ("Pipeline service", ("pipelines",)),
)
"""Title, and the packages whose metrics stand under it."""

SERVER, NETWORK, LOG, CONTROLLER = "kafka.server", "kafka.network", "kafka.log", "kafka.controller"
TOPICS, REPLICAS = (SERVER, "BrokerTopicMetrics"), (SERVER, "ReplicaManager")
REQUESTS, SOCKETS = (NETWORK, "RequestMetrics"), (SERVER, "socket-server-metrics")
MBEANS = {
    "kafka_messages_in_total": (*TOPICS, "MessagesInPerSec"),
    "kafka_bytes_in_total": (*TOPICS, "BytesInPerSec"),
    "kafka_bytes_out_total": (*TOPICS, "BytesOutPerSec"),
    "kafka_bytes_rejected_total": (*TOPICS, "BytesRejectedPerSec"),
    "kafka_total_produce_requests_total": (*TOPICS, "TotalProduceRequestsPerSec"),
    "kafka_total_fetch_requests_total": (*TOPICS, "TotalFetchRequestsPerSec"),
    "kafka_failed_produce_requests_total": (*TOPICS, "FailedProduceRequestsPerSec"),
    "kafka_failed_fetch_requests_total": (*TOPICS, "FailedFetchRequestsPerSec"),
    "kafka_produce_message_conversions_total": (*TOPICS, "ProduceMessageConversionsPerSec"),
    "kafka_fetch_message_conversions_total": (*TOPICS, "FetchMessageConversionsPerSec"),
    "kafka_replication_bytes_in_total": (*TOPICS, "ReplicationBytesInPerSec"),
    "kafka_replication_bytes_out_total": (*TOPICS, "ReplicationBytesOutPerSec"),
    "kafka_requests_total": (*REQUESTS, "RequestsPerSec"),
    "kafka_request_queue_time_ms": (*REQUESTS, "RequestQueueTimeMs"),
    "kafka_request_local_time_ms": (*REQUESTS, "LocalTimeMs"),
    "kafka_request_remote_time_ms": (*REQUESTS, "RemoteTimeMs"),
    "kafka_request_total_time_ms": (*REQUESTS, "TotalTimeMs"),
    "kafka_partitions": (*REPLICAS, "PartitionCount"),
    "kafka_leaders": (*REPLICAS, "LeaderCount"),
    "kafka_under_replicated_partitions": (*REPLICAS, "UnderReplicatedPartitions"),
    "kafka_under_min_isr_partitions": (*REPLICAS, "UnderMinIsrPartitionCount"),
    "kafka_at_min_isr_partitions": (*REPLICAS, "AtMinIsrPartitionCount"),
    "kafka_offline_replicas": (*REPLICAS, "OfflineReplicaCount"),
    "kafka_reassigning_partitions": (*REPLICAS, "ReassigningPartitions"),
    "kafka_isr_shrinks_total": (*REPLICAS, "IsrShrinksPerSec"),
    "kafka_isr_expands_total": (*REPLICAS, "IsrExpandsPerSec"),
    "kafka_failed_isr_updates_total": (*REPLICAS, "FailedIsrUpdatesPerSec"),
    "kafka_replica_fetcher_max_lag": (SERVER, "ReplicaFetcherManager", "MaxLag"),
    "kafka_replica_fetcher_failed_partitions": (SERVER, "ReplicaFetcherManager", "FailedPartitionsCount"),
    "kafka_replica_fetcher_consumer_lag": (SERVER, "FetcherLagMetrics", "ConsumerLag"),
    "kafka_fetch_sessions": (SERVER, "FetchSessionCache", "NumIncrementalFetchSessions"),
    "kafka_fetch_session_evictions_total": (
        SERVER, "FetchSessionCache", "IncrementalFetchSessionEvictionsPerSec",
    ),
    "kafka_client_metrics_instance_count": (SERVER, "client-metrics", "instance-count"),
    "kafka_client_metrics_unknown_subscription_request_total": (
        SERVER,
        "client-metrics",
        "unknown-subscription-request-count",
    ),
    "kafka_client_metrics_throttle_total": (SERVER, "client-metrics", "throttle-count"),
    "kafka_client_metrics_plugin_export_total": (SERVER, "client-metrics", "plugin-export-count"),
    "kafka_client_metrics_plugin_error_total": (SERVER, "client-metrics", "plugin-error-count"),
    "barnabas_purgatory_pending": (SERVER, "DelayedOperationPurgatory", "NumDelayedOperations"),
    "barnabas_purgatory_watched": (SERVER, "DelayedOperationPurgatory", "PurgatorySize"),
    "barnabas_purgatory_expired_total": (SERVER, "DelayedOperationPurgatory", "ExpiresPerSec"),
    "kafka_broker_state": (SERVER, "KafkaServer", "BrokerState"),
    "kafka_zookeeper_request_latency_ms": (SERVER, "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs"),
    "kafka_zookeeper_session_state": (SERVER, "SessionExpireListener", "SessionState"),
    "kafka_zookeeper_disconnects_total": (SERVER, "SessionExpireListener", "ZooKeeperDisconnectsPerSec"),
    "kafka_zookeeper_expires_total": (SERVER, "SessionExpireListener", "ZooKeeperExpiresPerSec"),
    "kafka_successful_authentication_total": (*SOCKETS, "successful-authentication-total"),
    "kafka_successful_reauthentication_total": (*SOCKETS, "successful-reauthentication-total"),
    "kafka_failed_authentication_total": (*SOCKETS, "failed-authentication-total"),
    "kafka_expired_connections_killed_total": (*SOCKETS, "expired-connections-killed-count"),
    "kafka_network_memory_pool_used": (NETWORK, "SocketServer", "MemoryPoolUsed"),
    "kafka_log_size": (LOG, "Log", "Size"),
    "kafka_log_num_log_segments": (LOG, "Log", "NumLogSegments"),
    "kafka_log_log_start_offset": (LOG, "Log", "LogStartOffset"),
    "kafka_log_log_end_offset": (LOG, "Log", "LogEndOffset"),
    "kafka_offline_log_directories": (LOG, "LogManager", "OfflineLogDirectoryCount"),
    "kafka_log_directory_offline": (LOG, "LogManager", "LogDirectoryOffline"),
    "kafka_log_cleaner_max_dirty_percent": (LOG, "LogCleanerManager", "max-dirty-percent"),
    "kafka_log_cleaner_map_utilization_percent": (LOG, "LogCleaner", "max-buffer-utilization-percent"),
    "kafka_log_cleaner_time_since_last_run_ms": (LOG, "LogCleanerManager", "time-since-last-run-ms"),
    "kafka_log_cleaner_uncleanable_partitions": (LOG, "LogCleanerManager", "uncleanable-partitions-count"),
    "kafka_controller_active_controller_count": (CONTROLLER, "KafkaController", "ActiveControllerCount"),
    "kafka_controller_offline_partitions_count": (CONTROLLER, "KafkaController", "OfflinePartitionsCount"),
    "kafka_controller_preferred_replica_imbalance_count": (
        CONTROLLER, "KafkaController", "PreferredReplicaImbalanceCount",
    ),
    "kafka_controller_global_topic_count": (CONTROLLER, "KafkaController", "GlobalTopicCount"),
    "kafka_controller_global_partition_count": (CONTROLLER, "KafkaController", "GlobalPartitionCount"),
    "kafka_controller_topics_to_delete_count": (CONTROLLER, "KafkaController", "TopicsToDeleteCount"),
    "kafka_controller_topics_ineligible_to_delete_count": (
        CONTROLLER, "KafkaController", "TopicsIneligibleToDeleteCount",
    ),
    "kafka_controller_active_broker_count": (CONTROLLER, "KafkaController", "ActiveBrokerCount"),
    "kafka_controller_leader_elections_total": (CONTROLLER, "ControllerStats", "LeaderElectionRateAndTimeMs"),
    "kafka_controller_unclean_leader_elections_total": (
        CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec",
    ),
    "kafka_controller_channel_queue_size": (CONTROLLER, "ControllerChannelManager", "QueueSize"),
    "kafka_controller_channel_queue_time_ms": (
        CONTROLLER, "ControllerChannelManager", "RequestRateAndQueueTimeMs",
    ),
    "kafka_controller_event_queue_size": (CONTROLLER, "ControllerEventManager", "EventQueueSize"),
    "kafka_controller_event_queue_time_ms": (CONTROLLER, "ControllerEventManager", "EventQueueTimeMs"),
    "kafka_group_coordinator_groups": ("kafka.coordinator.group", "GroupMetadataManager", "NumGroups"),
    "kafka_group_coordinator_offsets": ("kafka.coordinator.group", "GroupMetadataManager", "NumOffsets"),
    "kafka_coordinator_load_time_ms": (SERVER, "group-coordinator-metrics", "partition-load-time-max"),
}  # fmt: skip
"""Domain, type and name of the MBean of Apache Kafka 3.9 that counts the same."""

PREFACE = f"""\
# Metrics

`barnabas start --metrics 127.0.0.1:9404` serves `/metrics` in the Prometheus format, and `/health`. With TLS
and users the page may be served to other machines ([SECURITY.md](SECURITY.md)). The pipeline service has a
page of its own at `/metrics` ([PIPELINES.md](PIPELINES.md)).

- **Names.** A metric has Apache Kafka's name in Prometheus' form. The last column has the MBean that counts
  the same. The lag of groups has the names of `kafka_exporter`.
- **Rates.** Counters end in `_total` and only grow; the reader computes rates. Histograms have `_bucket`,
  `_sum` and `_count`, in milliseconds.
- **Cardinality.** One metric has at most `metrics.series.max` labelled series on the page ({SERIES_MAX:,} by
  default), and 4 MiB of those whose labels clients choose. `{DROPPED}` counts those that
  are left out, by metric. A deleted topic leaves nothing.
- **Times.** Queue and total times of requests count from the arrival in the kernel, so they include the wait
  for a busy loop. `barnabas_loop_busy_share` near 1 means that the broker needs another one beside it.
- **Lag.** The coordinator of a group knows the end offsets of partitions that it has replicas of. It asks the
  leaders of other partitions every `metrics.group.lag.interval.ms`; that is the precision of their lag in
  time.
- **State changes.** `state.change.log.file` names a file for every change of a partition or replica
  ([CONFIG.md](CONFIG.md)).

This page is rendered from the source (`make diagrams`).
"""


class Row(NamedTuple):
    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str
    package: str


def rows() -> list[Row]:
    found: dict[str, Row] = {}
    for path in sorted((SOURCE / "barnabas").rglob("*.py")):
        package = path.relative_to(SOURCE / "barnabas").parts[0]
        if package == CLIENT:
            continue
        for name, kind, labels, doc in registered(ast.parse(path.read_text(encoding="utf-8"))):
            row = Row(name, kind, labels, doc, section_of(name, package))
            assert found.setdefault(name, row)[:4] == row[:4], f"{name} is registered in two ways"
    doc = "Labelled series that this page leaves out, past metrics.series.max or 4 MiB."
    found[DROPPED] = Row(DROPPED, "gauge", ("metric",), doc, "core")
    return sorted(found.values())


def section_of(name: str, package: str) -> str:
    if "authentication" in name or name == "kafka_expired_connections_killed_total":
        return "security"
    return "storage" if name.startswith("kafka_log_") or "log_director" in name else package


def registered(tree: ast.Module) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and sentence of each metric that a module registers."""
    indirect = []
    for call in (node for node in ast.walk(tree) if is_registration(node)):
        assert isinstance(call, ast.Call)
        name, doc = text_of(call.args[0]), text_of(call.args[1])
        if name is None:
            indirect.append(call)
        else:
            assert doc is not None, f"{name} has no sentence"
            yield name, *kind_and_labels(tree, call, name), doc
    for call in indirect:
        for name, doc in named_beside(tree, call):
            if name.endswith("_total") == (kind_of(call, name) == "counter"):
                yield name, *kind_and_labels(tree, call, name), doc


def is_registration(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in KINDS
        and "metrics" in ast.unparse(node.func.value)
        and len(node.args) >= 2
    )


def named_beside(tree: ast.Module, call: ast.Call) -> Iterator[tuple[str, str]]:
    """Names and sentences in the loop, the function or the module around a registration by variable."""
    around = [node for node in ast.walk(tree) if isinstance(node, ast.For) and call in ast.walk(node)]
    tables = [each for each in (pairs(node.iter) for node in around) if each]
    yield from tables[0] if tables else pairs(tree)


def pairs(node: ast.AST) -> list[tuple[str, str]]:
    """Every pair of a name and a sentence that follow each other in a tuple or a call."""
    found = []
    for each in ast.walk(node):
        values = each.elts if isinstance(each, ast.Tuple) else each.args if isinstance(each, ast.Call) else []
        name, doc = (text_of(value) for value in values[:2]) if len(values) > 2 else (None, None)
        if name and doc and NAME.fullmatch(name) and not is_registration(each):
            found.append((name, doc))
    return found


def kind_of(call: ast.Call, name: str) -> str:
    assert isinstance(call.func, ast.Attribute)
    kind = call.func.attr
    return kind if kind != "samples" else "counter" if name.endswith("_total") else "gauge"


def kind_and_labels(tree: ast.Module, call: ast.Call, name: str) -> tuple[str, tuple[str, ...]]:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "samples":
        labels = call.args[2]
        if isinstance(labels, ast.Name):
            labels = assigned(tree, labels.id)
        return kind_of(call, name), tuple(ast.literal_eval(labels))
    return kind_of(call, name), tuple(sorted(str(each.arg) for each in call.keywords if each.arg != "read"))


def assigned(tree: ast.Module, name: str) -> ast.expr:
    (found,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return found


def text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def lines() -> Iterator[str]:
    yield PREFACE
    every = rows()
    unknown = MBEANS.keys() - {row.name for row in every}
    assert not unknown, f"no such metric: {unknown}"
    for title, packages in SECTIONS:
        yield f"## {title}\n"
        yield "| metric | kind | labels | what it is | MBean |"
        yield "|---|---|---|---|---|"
        for row in every:
            if row.package in packages:
                labels = ", ".join(f"`{each}`" for each in row.labels)
                mbean = "`{}:type={},name={}`".format(*MBEANS[row.name]) if row.name in MBEANS else ""
                yield f"| `{row.name}` | {row.kind} | {labels} | {row.doc} | {mbean} |"
        yield ""
    shown = {package for _, packages in SECTIONS for package in packages}
    left_out = {row.name for row in every if row.package not in shown}
    assert not left_out, f"no section has {left_out}"


def main() -> None:
    fresh = "\n".join(lines())
    if "--check" not in sys.argv:
        PAGE.write_text(fresh, encoding="utf-8")
    elif not PAGE.exists() or fresh != PAGE.read_text(encoding="utf-8"):
        raise SystemExit(f"{PAGE.name} differs from the code: run make diagrams")


if __name__ == "__main__":
    main()
