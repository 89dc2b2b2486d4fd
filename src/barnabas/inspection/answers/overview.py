"""One broker and the cluster as it knows it: counts, traffic, latencies, memory."""

from __future__ import annotations

from pathlib import Path
from resource import getpagesize
from typing import Any, Final

from barnabas import __version__
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.core.clock import process_cpu_s
from barnabas.core.ids import NO_LEADER
from barnabas.core.steps import Sliced
from barnabas.inspection.answers.groups import all_groups
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.sorting import chunks_of
from barnabas.inspection.wire import Question

_STATM: Final = Path("/proc/self/statm")
Row = dict[str, Any]


def overview(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Facts about this broker, and the cluster's metadata: topics that the user may describe."""
    broker, viewer = inspected.broker, inspected.viewer(question)
    metadata = broker.metadata
    counts = dict.fromkeys(("topics", "partitions", "under_replicated", "offline"), 0)
    led: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in list(metadata.topics()):
        is_counted = viewer.sees_topic(topic.name)
        counts["topics"] += is_counted and not topic.is_internal
        for partition in topic.partitions:
            led[partition.leader] = led.get(partition.leader, 0) + 1
            for replica in partition.replicas:
                replicas[replica] = replicas.get(replica, 0) + 1
            if is_counted:
                has_leader = partition.leader != NO_LEADER and metadata.is_live(partition.leader)
                counts["partitions"] += 1
                counts["under_replicated"] += len(partition.isr) < len(partition.replicas)
                counts["offline"] += not has_leader
            yield
    groups = 0
    for chunk in chunks_of(all_groups(inspected)):
        groups += sum(viewer.sees_group(each.group.group_id) for each in chunk)
        yield
    own = yield from _own(inspected)
    return {
        "at_ms": broker.clock.now_ms(),
        "cluster_id": broker.cluster_id,
        "broker_id": broker.broker_id,
        "controller_id": metadata.controller_id,
        "store": _store(inspected),
        **counts,
        "groups": groups,
        "brokers": [
            _broker_row(each, led.get(each.id, 0), replicas.get(each.id, 0)) for each in metadata.brokers()
        ],
        "own": own,
        "latencies": inspected.latencies.answer(),
    }


def _own(inspected: Inspected) -> Sliced[Row]:
    broker = inspected.broker
    size_bytes = 0
    totals = [0, 0, 0]
    counted: set[str] = set()
    for topic_partition, partition in list(broker.replicas.table.partitions.items()):
        if partition.log.log_directory.failure is None:
            size_bytes += partition.log.segments.size_bytes
        if topic_partition.topic not in counted:
            counted.add(topic_partition.topic)
            counters = partition.metrics
            for index, counter in enumerate((counters.messages_in, counters.bytes_in, counters.bytes_out)):
                totals[index] += counter.value
        yield
    cpu = inspected.rates.per_second("process", (process_cpu_s(),))
    return {
        "size_bytes": size_bytes,
        "version": __version__,
        "rates": inspected.rates.per_second("broker", totals),
        "connections": inspected.connections(),
        "memory_bytes": _memory_bytes(),
        "cpu_percent": None if cpu is None else 100 * cpu[0],
    }


def _memory_bytes() -> int | None:
    return int(_STATM.read_text().split()[1]) * getpagesize() if _STATM.exists() else None


def _broker_row(info: BrokerInfo, leaders: int, replicas: int) -> Row:
    endpoint = info.endpoints[0].endpoint if info.endpoints else ""
    return {
        "broker_id": info.id,
        "address": str(endpoint),
        "rack": info.rack,
        "leaders": leaders,
        "replicas": replicas,
    }


def _store(inspected: Inspected) -> str:
    return "zookeeper" if inspected.broker.config.zookeeper_connect else "embedded"
