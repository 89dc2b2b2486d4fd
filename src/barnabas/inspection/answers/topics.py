"""Topics: pages of them with sizes and rates, and the partitions of one.

Only the leaders of its partitions know the contents of a topic. A row has the sums over the partitions that
this broker leads (`led`), and the metadata of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.cluster.metadata.cache import TopicMetadata
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import NO_LEADER, TopicPartition
from barnabas.core.steps import Sliced
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.parameters import ROWS_MAX, choice, flag, number, text, texts
from barnabas.inspection.sorting import chunks_of, matches, sorted_in_slices
from barnabas.inspection.viewer import Viewer
from barnabas.inspection.wire import Question
from barnabas.replication.partition.partition import Partition
from barnabas.security.acl.vocabulary import ResourceType

SORTS: Final = ("name", "partitions", "records", "size", "in", "out")
Row = dict[str, Any]


def topics(inspected: Inspected, question: Question) -> Sliced[Row]:
    """A page of the topics that the user may describe."""
    viewer = inspected.viewer(question)
    sort = choice(question, "sort", SORTS)
    found = yield from visible_topics(
        inspected, viewer, text(question, "search"), include_internal=flag(question, "include_internal")
    )
    is_descending = flag(question, "descending")
    in_order = yield from sorted_in_slices(
        found, lambda each: each.name, descending=is_descending and sort == "name"
    )
    if sort != "name":
        keys = yield from _keys(inspected, in_order, sort)
        in_order = yield from sorted_in_slices(in_order, keys, descending=is_descending)
    offset, limit = number(question, "offset"), number(question, "limit", 50, ROWS_MAX)
    page = in_order[offset : offset + limit]
    readers = yield from groups_of_topics(inspected, viewer, {topic.name for topic in page})
    rows = []
    for topic in page:
        rows.append(topic_row(inspected, topic, readers.get(topic.name, 0)))
        yield
    return {"total": len(found), "rows": rows}


def topic_parts(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Rows of the named topics, in no order."""
    viewer = inspected.viewer(question)
    names = texts(question, "names")
    readers = yield from groups_of_topics(inspected, viewer, set(names))
    rows = []
    for name in names:
        topic = inspected.broker.metadata.topic(name)
        if topic is not None and viewer.sees_topic(name):
            rows.append(topic_row(inspected, topic, readers.get(name, 0)))
        yield
    return {"rows": rows}


def topic_totals(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Name, records, bytes and rates of every topic of which this broker leads a partition."""
    found = yield from visible_topics(
        inspected,
        inspected.viewer(question),
        text(question, "search"),
        include_internal=flag(question, "include_internal"),
    )
    rows = []
    for topic in found:
        led = _led(inspected, topic)
        if led:
            records, size_bytes = _content(led)
            rates = _rates(inspected, topic.name, led[0])
            rows.append([topic.name, records, size_bytes, rates])
        yield
    return {"rows": rows}


def topic(inspected: Inspected, question: Question) -> Sliced[Row]:
    """A topic with all its partitions. Offsets and sizes are those of the partitions that are led here."""
    viewer, name = inspected.viewer(question), text(question, "topic")
    viewer.require(ResourceType.TOPIC, name)
    found = inspected.broker.metadata.topic(name)
    if found is None:
        raise UnknownTopicOrPartition(f"the topic '{name}' does not exist")
    readers = yield from groups_of_topics(inspected, viewer, {name})
    partitions = []
    for known in found.partitions:
        local = led_partition(inspected, TopicPartition(name, known.partition))
        row: Row = {
            "partition": known.partition,
            "leader_id": known.leader,
            "leader_epoch": known.leader_epoch,
            "replicas": list(known.replicas),
            "isr": list(known.isr),
            "offline": inspected.broker.metadata.offline_replicas(known),
            "start_offset": None,
            "end_offset": None,
            "size_bytes": None,
            "last_stable_offset": None,
        }
        if local is not None:
            log = local.log
            row |= {
                "start_offset": log.log_start_offset,
                "end_offset": log.high_watermark,
                "size_bytes": log.segments.size_bytes,
                "last_stable_offset": log.last_stable_offset,
            }
        partitions.append(row)
        yield
    return {"row": topic_row(inspected, found, readers.get(name, 0)), "partitions": partitions}


def visible_topics(
    inspected: Inspected, viewer: Viewer, search: str, *, include_internal: bool
) -> Sliced[list[TopicMetadata]]:
    words = search.casefold().split()
    found: list[TopicMetadata] = []
    for chunk in chunks_of(list(inspected.broker.metadata.topics())):
        found += [
            each
            for each in chunk
            if (include_internal or not each.is_internal)
            and matches(each.name, words)
            and viewer.sees_topic(each.name)
        ]
        yield
    return found


def topic_row(inspected: Inspected, topic: TopicMetadata, groups: int) -> Row:
    led = _led(inspected, topic)
    records, size_bytes = _content(led)
    metadata = inspected.broker.metadata
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(each.replicas) for each in topic.partitions), default=0),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
        "offline": sum(
            each.leader == NO_LEADER or not metadata.is_live(each.leader) for each in topic.partitions
        ),
        "led": len(led),
        "records": records,
        "size_bytes": size_bytes,
        "rates": _rates(inspected, topic.name, led[0]) if led else None,
        "groups": groups,
        "cleanup_policy": ",".join(led[0].log.config.cleanup_policy) if led else None,
    }


def led_partition(inspected: Inspected, topic_partition: TopicPartition) -> Partition | None:
    """The partition, if this broker leads it and can read its log."""
    found = inspected.broker.replicas.find(topic_partition)
    if found is None or not found.leadership.is_leader or found.log.log_directory.failure is not None:
        return None
    return found


def _led(inspected: Inspected, topic: TopicMetadata) -> list[Partition]:
    found = (
        led_partition(inspected, TopicPartition(topic.name, each.partition)) for each in topic.partitions
    )
    return [each for each in found if each is not None]


def _content(led: list[Partition]) -> tuple[int, int]:
    return (
        sum(each.log.high_watermark - each.log.log_start_offset for each in led),
        sum(each.log.segments.size_bytes for each in led),
    )


def _rates(inspected: Inspected, name: str, partition: Partition) -> list[float] | None:
    """Records in, bytes in and bytes out a second."""
    counters = partition.metrics
    return inspected.rates.per_second(
        f"topic {name}", (counters.messages_in.value, counters.bytes_in.value, counters.bytes_out.value)
    )


def _keys(
    inspected: Inspected, found: list[TopicMetadata], sort: str
) -> Sliced[Callable[[TopicMetadata], Any]]:
    """The key by which a page is sorted. It is computed once for each topic."""
    if sort == "partitions":
        return lambda topic: len(topic.partitions)
    keys: dict[str, float | None] = {}
    for each in found:
        led = _led(inspected, each)
        if sort in ("records", "size"):
            keys[each.name] = _content(led)[sort == "size"] if led else None
        else:
            rates = _rates(inspected, each.name, led[0]) if led else None
            keys[each.name] = None if rates is None else rates[1 if sort == "in" else 2]
        yield
    return lambda topic: keys[topic.name]


def groups_of_topics(inspected: Inspected, viewer: Viewer, names: set[str]) -> Sliced[dict[str, int]]:
    """Number of groups that are coordinated here and have offsets in each of the topics."""
    counts: dict[str, int] = {}
    for _, shard in inspected.broker.groups.runtime.active_shards():
        for chunk in chunks_of(list(shard.offsets.committed.items())):
            for group, committed in chunk:
                for name in names & committed.keys():
                    if viewer.sees_group(group):
                        counts[name] = counts.get(name, 0) + 1
            yield
    return counts
