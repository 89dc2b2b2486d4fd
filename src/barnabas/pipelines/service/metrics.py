"""Prometheus metrics of pipelines."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.reporting.metrics import TOTAL_SUFFIX, Metrics, render_prometheus
from barnabas.pipelines.service.supervisor import State, Supervised, Supervisor

_ROWS: tuple[tuple[str, str, Callable[[Supervised], float]], ...] = (
    ("barnabas_pipeline_running", "1 while the pipeline runs.", lambda each: each.state is State.RUNNING),
    ("barnabas_pipeline_failed", "1 once the pipeline has FAILED.", lambda each: each.state is State.FAILED),
    ("barnabas_pipeline_restarts_total", "Restarts after failures.", lambda each: each.restarts),
    ("barnabas_pipeline_records_total", "Records read.", lambda each: each.records_total),
    ("barnabas_pipeline_dead_letters_total", "Records that failed.", lambda each: each.errors_total),
    ("barnabas_pipeline_lag_records", "Records of the source that are not read yet; -1 if unknown.",
     lambda each: -1 if each.lag is None else each.lag),
    ("barnabas_pipeline_batch_ms", "Duration of the last micro-batch.",
     lambda each: 0 if each.progress is None else each.progress.batch_ms),
    ("barnabas_pipeline_records_per_second", "Rate of the last micro-batch.",
     lambda each: 0.0 if each.progress is None else each.progress.records_per_second),
)  # fmt: skip


def render_metrics(supervisor: Supervisor) -> str:
    metrics = Metrics()
    for name, pipeline in sorted(supervisor.pipelines.items()):
        for metric, doc, read in _ROWS:
            value = float(read(pipeline))
            if metric.endswith(TOTAL_SUFFIX):
                metrics.counter(metric, doc, pipeline=name).value = int(value)
                continue
            metrics.gauge(metric, doc, lambda value=value: value, pipeline=name)  # type: ignore[misc]
    return render_prometheus(metrics)
