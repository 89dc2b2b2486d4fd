"""Offsets behind the latest, from a query's progress: the metrics of Spark's own Kafka connector.

Spark asks sources in Java for metrics of their own. It offers no such call to sources in Python, so
`sources[].metrics` of `lastProgress` is empty. The progress has the end offsets of the micro-batch and the
latest ones of the topics, and these numbers follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barnabas.pipelines.state.checkpoint_format import without_topic_ids
from barnabas.pipelines.state.progress import partition_offsets


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> list[dict[str, float]]:
    """Minimum, maximum and average lag of the partitions, for each source of `query.lastProgress`.

    A source without offsets of topics, and a query before its first progress, have no numbers.
    """
    if progress is None:
        return []
    return [_behind(source) for source in progress["sources"]]


def _behind(source: Mapping[str, Any]) -> dict[str, float]:
    read, latest = (_offsets(source[name]) for name in ("endOffset", "latestOffset"))
    lags = [
        max(0, offset - read.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    ]
    if not lags:
        return {}
    return {
        "minOffsetsBehindLatest": min(lags),
        "maxOffsetsBehindLatest": max(lags),
        "avgOffsetsBehindLatest": sum(lags) / len(lags),
    }


def _offsets(value: Any) -> dict[str, dict[int, int]]:
    tree = json.loads(value) if isinstance(value, str) else value
    return partition_offsets(without_topic_ids(tree)) if isinstance(tree, dict) else {}
