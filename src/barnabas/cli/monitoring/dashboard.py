"""Grafana dashboard as rows of panels.

Each panel has a title, expressions with their legends, a unit and a sentence of help. The data source and the
instances are variables of the dashboard, so it works without a change in any Grafana since 9.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

TITLE: Final = "Barnabas"
SCHEMA_VERSION: Final = 37
"""Of Grafana 9; later ones migrate it."""
WIDTH: Final = 24
PANELS_PER_ROW: Final = 3
HEIGHT: Final = 8
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
HERE: Final = 'instance=~"$instance"'
"""Labels by which the variable of the dashboard chooses instances."""


class Panel(NamedTuple):
    title: str
    queries: tuple[tuple[str, str], ...]
    """Expression and legend."""
    unit: str = "short"
    help: str = ""
    kind: str = "timeseries"


def _p99(metric: str, by: str = "api") -> str:
    return f"histogram_quantile(0.99, sum by (le, {by}) (rate({metric}_bucket{{{HERE}}}[$__rate_interval])))"


def _rate(metric: str, by: str = "instance", labels: str = HERE) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


ROWS: Final = (
    ("Cluster", (
        Panel("Brokers", (("max(kafka_controller_active_broker_count)", "live"),), kind="stat"),
        Panel("Partitions without a leader", (("max(kafka_controller_offline_partitions_count)", "offline"),),
              kind="stat", help="Must be 0."),
        Panel("Under-replicated partitions", ((f"sum(kafka_under_replicated_partitions{{{HERE}}})", "partitions"),),
              kind="stat"),
        Panel("Topics and partitions", (
            ("max(kafka_controller_global_topic_count)", "topics"),
            ("max(kafka_controller_global_partition_count)", "partitions"),
        )),
        Panel("Leaders", ((f"kafka_leaders{{{HERE}}}", "{{instance}}"),)),
        Panel("ISR changes", (
            (_rate("kafka_isr_shrinks_total"), "shrinks {{instance}}"),
            (_rate("kafka_isr_expands_total"), "expands {{instance}}"),
        ), unit="ops"),
    )),
    ("Traffic", (
        Panel("Bytes in", ((_rate("kafka_bytes_in_total"), "{{instance}}"),), unit="Bps"),
        Panel("Bytes out", ((_rate("kafka_bytes_out_total"), "{{instance}}"),), unit="Bps"),
        Panel("Records in", ((_rate("kafka_messages_in_total"), "{{instance}}"),), unit="ops"),
        Panel("Topics that grow most", (
            (f"topk(10, {_rate('kafka_bytes_in_total', 'topic')})", "{{topic}}"),
        ), unit="Bps"),
        Panel("Replication", (
            (_rate("kafka_replication_bytes_in_total"), "in {{instance}}"),
            (_rate("kafka_replication_bytes_out_total"), "out {{instance}}"),
        ), unit="Bps"),
        Panel("Refused", (
            (_rate("kafka_failed_produce_requests_total"), "produce {{instance}}"),
            (_rate("kafka_failed_fetch_requests_total"), "fetch {{instance}}"),
            (_rate("kafka_throttled_requests_total", "quota"), "throttled {{quota}}"),
        ), unit="ops"),
    )),
    ("Requests", (
        Panel("Requests", ((_rate("kafka_requests_total", "api"), "{{api}}"),), unit="reqps"),
        Panel("Total time, p99", ((_p99("kafka_request_total_time_ms"), "{{api}}"),), unit="ms",
              help="From the arrival in the kernel until the response is given to the socket."),
        Panel("Queue time, p99", ((_p99("kafka_request_queue_time_ms"), "{{api}}"),), unit="ms",
              help="Wait for the loop: it grows when the broker is busy."),
        Panel("Handler time, p99", ((_p99("kafka_request_local_time_ms"), "{{api}}"),), unit="ms"),
        Panel("Waiting time, p99", ((_p99("kafka_request_remote_time_ms"), "{{api}}"),), unit="ms",
              help="For replication, long polls and the coordination store."),
        Panel("Waiting requests", ((f"barnabas_purgatory_pending{{{HERE}}}", "{{purgatory}} {{instance}}"),)),
    )),
    ("Groups", (
        Panel("Lag in records", (
            ("topk(10, sum by (consumergroup) (kafka_consumergroup_lag))", "{{consumergroup}}"),
        )),
        Panel("Lag in time", (
            ("topk(10, max by (consumergroup) (kafka_consumergroup_lag_ms))", "{{consumergroup}}"),
        ), unit="ms", help="Age of the first record that a group has not committed."),
        Panel("Groups", ((f"kafka_group_coordinator_groups{{{HERE}}}", "{{instance}}"),)),
    )),
    ("Logs", (
        Panel("Largest topics", (("topk(10, sum by (topic) (kafka_log_size))", "{{topic}}"),), unit="bytes"),
        Panel("Free space", (
            (f"barnabas_log_directory_free_bytes{{{HERE}}}", "{{log_directory}} {{instance}}"),
        ), unit="bytes"),
        Panel("Cleaner", (
            (_rate("kafka_log_cleaner_read_bytes_total"), "read {{instance}}"),
            (_rate("kafka_log_cleaner_written_bytes_total"), "written {{instance}}"),
        ), unit="Bps"),
    )),
    ("Clients", (
        Panel("Connections", ((f"barnabas_network_connections{{{HERE}}}", "{{instance}}"),)),
        Panel("Clients that report", ((f"kafka_client_metrics_instance_count{{{HERE}}}", "{{instance}}"),),
              help="Client instances that the broker knows (KIP-714)."),
        Panel("Latency that producers report", (
            ('barnabas_client_reported{metric="org.apache.kafka.producer.node.request.latency.avg"}',
             "{{client_id}} {{attributes}}"),
        ), unit="ms", help="Needs a client-metrics subscription: `barnabas config set client-metrics`."),
    )),
    ("Process", (
        Panel("CPU", ((_rate("process_cpu_seconds_total"), "{{instance}}"),), unit="percentunit"),
        Panel("Busy share of the loop", ((f"barnabas_loop_busy_share{{{HERE}}}", "{{instance}}"),),
              unit="percentunit"),
        Panel("Longest delay of the loop", ((f"barnabas_loop_lag_ms{{{HERE}}}", "{{instance}}"),), unit="ms"),
        Panel("Memory", ((f"process_resident_memory_bytes{{{HERE}}}", "{{instance}}"),), unit="bytes"),
        Panel("State of clients", ((f"barnabas_kept_memory_bytes{{{HERE}}}", "{{kind}} {{instance}}"),),
              unit="bytes"),
        Panel("Open files", ((f"process_open_fds{{{HERE}}}", "{{instance}}"),)),
    )),
    ("Pipelines", (
        Panel("Records", (("barnabas_pipeline_records_per_second", "{{pipeline}}"),), unit="ops"),
        Panel("Lag", (("barnabas_pipeline_lag_records", "{{pipeline}}"),)),
        Panel("Dead letters", (
            ("sum by (pipeline) (rate(barnabas_pipeline_dead_letters_total[$__rate_interval]))", "{{pipeline}}"),
        ), unit="ops"),
    )),
)  # fmt: skip


def render_dashboard() -> str:
    """The dashboard as JSON that Grafana imports."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append({"type": "row", "title": title, "gridPos": _place(0, top, WIDTH, 1), "panels": []})
        top += 1
        width = WIDTH // PANELS_PER_ROW
        for number, panel in enumerate(row):
            line, column = divmod(number, PANELS_PER_ROW)
            panels.append(_panel(panel, _place(column * width, top + line * HEIGHT, width, HEIGHT)))
        top += (len(row) + PANELS_PER_ROW - 1) // PANELS_PER_ROW * HEIGHT
    for number, each in enumerate(panels, 1):
        each["id"] = number
    dashboard = {
        "uid": "barnabas",
        "title": TITLE,
        "tags": ["kafka", "barnabas"],
        "schemaVersion": SCHEMA_VERSION,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=2) + "\n"


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": expression,
                "legendFormat": legend,
                "datasource": DATASOURCE,
            }
            for number, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "instance",
            "type": "query",
            "label": "Broker",
            "datasource": DATASOURCE,
            "query": {"query": "label_values(kafka_broker_state, instance)", "refId": "instances"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]
