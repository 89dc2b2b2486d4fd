"""Alert rules as rows, rendered as a rule file of Prometheus.

An alert names what an operator can do. An alert that pages an operator is `critical`; the others can wait for the
morning. A rule about one broker keeps its labels; a rule about the cluster aggregates.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple


class Alert(NamedTuple):
    name: str
    expression: str
    wait: str
    """Time for which the expression must hold."""
    severity: str
    summary: str
    action: str


CRITICAL, WARNING = "critical", "warning"

ALERTS: Final = (
    Alert("KafkaPartitionsOffline", "max(kafka_controller_offline_partitions_count) > 0", "1m", CRITICAL,
          "{{ $value }} partitions have no leader",
          "Start the brokers that have their replicas; `barnabas topic describe` names them."),
    Alert("KafkaNoController", "sum(kafka_controller_active_controller_count) != 1", "1m", CRITICAL,
          "{{ $value }} brokers are the active controller",
          "Check the coordination store and its connections to the brokers."),
    Alert("KafkaPartitionsUnderMinIsr", "kafka_under_min_isr_partitions > 0", "2m", CRITICAL,
          "{{ $value }} partitions refuse writes with acks=all",
          "Start the missing followers; producers get NOT_ENOUGH_REPLICAS until then."),
    Alert("KafkaPartitionsUnderReplicated", "kafka_under_replicated_partitions > 0", "10m", WARNING,
          "{{ $value }} partitions led here have followers out of sync",
          "Look for a stopped broker, a slow disk or a throttled replication."),
    Alert("KafkaUncleanLeaderElection", "increase(kafka_controller_unclean_leader_elections_total[10m]) > 0", "0m",
          CRITICAL, "A replica that was not in sync became leader: records may be lost",
          "Compare producers with the log; set unclean.leader.election.enable=false."),
    Alert("KafkaLogDirectoryOffline", "kafka_offline_log_directories > 0", "0m", CRITICAL,
          "{{ $value }} log directories of the broker have failed",
          "Replace the disk and restart the broker; its partitions are led elsewhere."),
    Alert("KafkaDiskFillsUp",
          "predict_linear(barnabas_log_directory_free_bytes[6h], 86400) < 0", "30m", WARNING,
          "{{ $labels.log_directory }} is full within a day at this pace",
          "Lower retention.ms or retention.bytes of the largest topics, or add disks."),
    Alert("KafkaReplicaFetcherFailed", "kafka_replica_fetcher_failed_partitions > 0", "5m", WARNING,
          "{{ $value }} partitions are not copied from their leader", "The broker's log names the error."),
    Alert("KafkaLogCleanerStuck", "kafka_log_cleaner_uncleanable_partitions > 0", "15m", WARNING,
          "{{ $value }} partitions cannot be compacted", "The broker's log names the batch at fault."),
    Alert("KafkaConsumerGroupBehind", "max by (consumergroup, topic) (kafka_consumergroup_lag_ms) > 600000", "10m",
          WARNING, "Group {{ $labels.consumergroup }} is more than ten minutes behind in {{ $labels.topic }}",
          "Look at the group's members with `barnabas group describe`, and at its errors."),
    Alert("KafkaRequestsSlow",
          "histogram_quantile(0.99, sum by (le, api) (rate(kafka_request_total_time_ms_bucket"
          "{api=\"Produce\"}[5m]))) > 1000", "10m", WARNING,
          "One of a hundred produce requests takes more than {{ $value | humanize }} ms",
          "Compare queue, local and remote time: a busy broker, a slow disk or slow followers."),
    Alert("BarnabasLoopBusy", "barnabas_loop_busy_share > 0.9", "15m", WARNING,
          "The broker computes {{ $value | humanizePercentage }} of the time",
          "Move leaderships to another broker, or add one."),
    Alert("BarnabasLoopBlocked", "barnabas_loop_lag_ms > 1000", "5m", WARNING,
          "The broker's loop was held for {{ $value | humanize }} ms", "Look for swapping and a stalled disk."),
    Alert("BarnabasMemoryRefused", "increase(barnabas_kept_memory_refused_total[15m]) > 0", "0m", WARNING,
          "Clients were refused because their state of kind {{ $labels.kind }} reached its limit",
          "Look for a client that creates members, sessions or transactional ids without end."),
    Alert("BarnabasSeriesDropped", "barnabas_metrics_dropped_series > 0", "30m", WARNING,
          "{{ $value }} series of {{ $labels.metric }} are not on the metrics page",
          "Raise metrics.series.max, if Prometheus can take them."),
    Alert("KafkaAuthenticationFails", "sum by (instance) (rate(kafka_failed_authentication_total[5m])) > 1", "10m",
          WARNING, "{{ $value | humanize }} logins a second fail", "The audit log has the addresses."),
    Alert("KafkaCertificateExpires", "barnabas_tls_certificate_expires_in_seconds < 1209600", "1h", WARNING,
          "The certificate of listener {{ $labels.listener }} expires in {{ $value | humanizeDuration }}",
          "Replace the file; the broker reads it again."),
    Alert("KafkaStoreSessionExpired", "increase(kafka_zookeeper_expires_total[15m]) > 0", "0m", WARNING,
          "The broker lost its session with the coordination store", "Check the store, and pauses of the machine."),
    Alert("BarnabasPipelineFailed", "barnabas_pipeline_failed > 0", "0m", CRITICAL,
          "Pipeline {{ $labels.pipeline }} has failed", "`barnabas pipeline status` shows its last error."),
    Alert("BarnabasPipelineDeadLetters", "increase(barnabas_pipeline_dead_letters_total[15m]) > 0", "0m", WARNING,
          "Pipeline {{ $labels.pipeline }} writes dead letters", "`barnabas pipeline dead-letters` shows them."),
)  # fmt: skip


def render_alerts() -> str:
    """The rule file. A JSON string is a YAML string too, so nothing needs YAML's quoting rules."""
    lines = ["groups:", "  - name: barnabas", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.wait}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          description: {json.dumps(alert.action)}",
        ]
    return "\n".join(lines) + "\n"
