"""Progress report of a micro-batch, and its line for the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from barnabas.pipelines.state.checkpoint_format import without_topic_ids


@dataclass(frozen=True, slots=True)
class Progress:
    pipeline: str
    batch_id: int
    records: int
    records_per_second: float
    batch_ms: int
    errors: int
    """Records that could not be decoded or written."""
    lag: int | None
    """Unread records of the source; None where the source has no such number."""
    offsets: Mapping[str, Any]
    """End offsets of the micro-batch."""
    sink: Mapping[str, Any] | None = None
    """Size and last commit of a table, with the time of the newest record in it. Flows and last update of a
    declarative pipeline. None for other sinks."""

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Progress:
        return cls(**document)

    @property
    def error_ratio(self) -> float:
        return self.errors / self.records if self.records else 0.0


def progress_of(pipeline: str, report: Mapping[str, Any]) -> Progress:
    """Progress from Spark's report of a micro-batch (`StreamingQueryProgress` as JSON)."""
    sources = report.get("sources") or []
    end = [_offsets(source.get("endOffset")) for source in sources]
    latest = [_offsets(source.get("latestOffset")) for source in sources]
    observed = (report.get("observedMetrics") or {}).get("decoded") or {}
    return Progress(
        pipeline=pipeline,
        batch_id=int(report.get("batchId", 0)),
        # With dead letters, Spark reads the source twice and counts it twice.
        records=int(observed.get("records", report.get("numInputRows", 0))),
        records_per_second=_finite(report.get("processedRowsPerSecond")),
        batch_ms=int((report.get("durationMs") or {}).get("triggerExecution", 0)),
        errors=int(observed.get("errors", 0)),
        lag=_lag(end, latest),
        offsets=next((each for each in end if each), {}),
    )


def _finite(value: Any) -> float:
    """Finite number: Spark reports NaN and Infinity for a division by zero."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0


def _offsets(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return without_topic_ids(value) if isinstance(value, dict) else {}


def partition_offsets(offsets: Mapping[str, Any]) -> dict[str, dict[int, int]]:
    """`{"topic": {"0": 5}}` of a topic source; empty for any other source."""
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in offsets.items():
        if isinstance(partitions, dict) and all(isinstance(each, int) for each in partitions.values()):
            found[topic] = {int(partition): offset for partition, offset in partitions.items()}
    return found


def _lag(ends: list[dict[str, Any]], latests: list[dict[str, Any]]) -> int | None:
    total, known = 0, False
    for end, latest in zip(ends, latests, strict=True):
        read = partition_offsets(end)
        for topic, partitions in partition_offsets(latest).items():
            for partition, offset in partitions.items():
                known = True
                total += max(0, offset - read.get(topic, {}).get(partition, 0))
    return total if known else None


def behind_ms(progress: Progress, lag: int | None, now_ms: int) -> int | None:
    """Lag in time: the age of the newest record in the sink, or 0 without unread records; None if unknown."""
    newest_ms = (progress.sink or {}).get("newest_ms")
    if lag == 0:
        return 0
    return None if lag is None or newest_ms is None else max(0, now_ms - int(newest_ms))


def sink_line(progress: Progress, lag: int | None, now_ms: int) -> str | None:
    """Line such as `delta table, version 12  9 rows in 3 files (0.1 MB)  last commit 5 s ago  2 s behind`, or
    `2 flows  last update 5 s ago` for a declarative pipeline."""
    sink = progress.sink
    if sink and "updated_at_ms" in sink:
        ago_s = max(0, now_ms - int(sink["updated_at_ms"])) // 1_000
        return f"{sink['flows']} flows  last update {ago_s:,} s ago"
    if not sink or "version" not in sink:
        return None
    ago_s = max(0, now_ms - int(sink["committed_at_ms"])) // 1_000
    parts = [
        f"{sink['format']} table, version {sink['version']}",
        f"{sink['rows']:,} rows in {sink['files']:,} files ({sink['bytes'] / (1 << 20):,.1f} MB)",
        f"last commit {ago_s:,} s ago",
    ]
    behind = behind_ms(progress, lag, now_ms)
    return "  ".join(parts if behind is None else [*parts, f"{behind / 1_000:,.0f} s behind"])


def progress_line(progress: Progress, total: int) -> str:
    """Line such as `clean  batch 12  1,200 records (4,100/s, 292 ms)  lag 0  total 14,000`"""
    parts = [
        progress.pipeline,
        f"{'update' if progress.sink and 'updated_at_ms' in progress.sink else 'batch'} {progress.batch_id}",
        f"{progress.records:,} records ({progress.records_per_second:,.0f}/s, {progress.batch_ms} ms)",
    ]
    if progress.lag is not None:
        parts.append(f"lag {progress.lag:,}")
    if progress.errors:
        parts.append(f"bad {progress.errors:,}")
    return "  ".join([*parts, f"total {total:,}"])
