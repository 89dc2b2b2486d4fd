"""Checks a history for violations. Each check is a function from a history to complaints.

In the style of Jepsen's Kafka workload: *lost* (acknowledged, and not in the log), *duplicated* (in the log
twice), *reordered* (a producer's values in another order than it wrote them), *inconsistent* (two views of
one offset), *phantom* (seen by a reader, and gone), *skipped* and *backward* (a reader that was not given
every record in its order), *aborted read* and *torn transaction* (a committed reader sees what was aborted,
or part of what was committed), *copied wrongly* (not exactly once from an input to an output), *offset of a
deleted topic* (one that a group would apply to the topic that came back under the name), *stuck last stable
offset* and *hanging transaction* (`stability`). `acknowledgements` has the guarantees of acks=1, and the
times at which a write may be acknowledged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tests.chaos.acknowledgements import acknowledged_out_of_time, lost_without_a_failover
from tests.chaos.decisions import hanging_transactions, stuck_last_stable_offsets
from tests.chaos.history import ALL_REPLICAS, History, Outcome, Place, Producer, Value, Write

Complaint = str


def lost(history: History) -> Iterator[Complaint]:
    present = {value for rows in history.final.values() for _, value in rows}
    for write in _promised(history):
        if write.value not in present:
            yield f"lost: {write.value} was acknowledged at {write.topic}-{write.partition}@{write.offset}"


def _promised(history: History) -> Iterator[Write]:
    """Records that survive any leader."""
    for write in history.writes:
        if write.outcome is Outcome.ACKNOWLEDGED and write.acks == ALL_REPLICAS:
            yield write


def duplicated(history: History) -> Iterator[Complaint]:
    places: defaultdict[Value, list[Place]] = defaultdict(list)
    for (topic, partition), rows in history.final.items():
        for offset, value in rows:
            places[value].append(Place(topic, partition, offset))
    excused = sent_again(history)
    for value, found in places.items():
        if len(found) > excused.get((value.producer, value.number), 1):
            yield f"duplicated: {value} is at {found}{_written_by(found, history)}"


def sent_again(history: History) -> dict[tuple[str, int], int]:
    """Number of duplicates in the log that the client, not a broker, has written.

    librdkafka writes them when a partition answers OUT_OF_ORDER_SEQUENCE_NUMBER behind a refused batch. It
    takes a new epoch for the batches of all partitions, including batches that may have been written (its
    issue 4953). Each duplicate is in the log under its own epoch. This needs several requests in flight. A
    client with one request in flight has no excuse.
    """
    copies = {target for _, target in history.copied.values()}
    epochs: defaultdict[Value, list[Producer | None]] = defaultdict(list)
    for (topic, partition), rows in history.final.items():
        if topic not in copies:
            for offset, value in rows:
                if value.producer in history.pipelining and not value.transaction:
                    epochs[value].append(history.producers.get(Place(topic, partition, offset)))
    return {
        (value.producer, value.number): len(found)
        for value, found in epochs.items()
        if len(found) > 1 and _is_numbered_anew(found)
    }


def _is_numbered_anew(producers: Sequence[Producer | None]) -> bool:
    return all(
        before is not None and after is not None and before.id == after.id and before.epoch < after.epoch
        for before, after in pairwise(producers)
    )


def _written_by(places: Sequence[Place], history: History) -> str:
    producers = [history.producers.get(place) for place in places]
    if None in producers:
        return ""
    told = ", ".join(f"{each.id} in epoch {each.epoch}" for each in producers if each is not None)
    return f", written by producer {told}"


def reordered(history: History) -> Iterator[Complaint]:
    """Among what was committed: what an aborted transaction had written is written again after it."""
    excused = sent_again(history)
    for (topic, partition), rows in history.final_committed.items():
        last: dict[str, int] = {}
        seen: set[tuple[str, int]] = set()
        for offset, value in rows:
            which = (value.producer, value.number)
            if which in seen and which in excused:
                continue
            seen.add(which)
            if value.number < last.get(value.producer, -1):
                yield (
                    f"reordered: {value} at {topic}-{partition}@{offset} comes after number"
                    f" {last[value.producer]} of the same producer"
                )
            last[value.producer] = value.number


def inconsistent(history: History) -> Iterator[Complaint]:
    """Every reader must have seen a part of the log at the end."""
    final = {
        Place(topic, partition, offset): value
        for (topic, partition), rows in history.final.items()
        for offset, value in rows
    }
    for write in _promised(history):
        if write.offset is not None:
            place = Place(write.topic, write.partition, write.offset)
            if final.get(place) not in (None, write.value):
                yield f"inconsistent: {write.value} was acknowledged at {place}, where {final[place]} is"
    for reading in history.readings:
        for offset, value in reading.seen:
            place = Place(reading.topic, reading.partition, offset)
            if place not in final:
                yield f"phantom: {reading.consumer} saw {value} at {place}, where nothing is now"
            elif final[place] != value:
                yield f"inconsistent: {reading.consumer} saw {value} at {place}, where {final[place]} is"


def skipped_or_backward(history: History) -> Iterator[Complaint]:
    offsets = {place: [offset for offset, _ in rows] for place, rows in history.final.items()}
    for reading in history.readings:
        if not reading.seen:
            continue
        seen = [offset for offset, _ in reading.seen]
        for before, after in pairwise(seen):
            if after <= before:
                yield (
                    f"backward: {reading.consumer} read {reading.topic}-{reading.partition} at {after} after"
                    f" {before}"
                )
        wanted = [
            offset
            for offset in offsets.get((reading.topic, reading.partition), ())
            if seen[0] <= offset <= seen[-1]
        ]
        for missing in sorted(set(wanted) - set(seen)):
            yield f"skipped: {reading.consumer} did not get {reading.topic}-{reading.partition}@{missing}"


def torn_transactions(history: History) -> Iterator[Complaint]:
    visible = Counter(
        value for rows in history.final_committed.values() for _, value in rows if value.transaction
    )
    for transaction in history.transactions:
        shown = [value for value in transaction.values if visible[value]]
        if shown and transaction.outcome is Outcome.REFUSED:
            yield f"aborted read: {shown[0]} of the aborted transaction {transaction.name}"
        elif shown and len(shown) < len(transaction.values):
            yield f"torn: {len(shown)} of {len(transaction.values)} values of {transaction.name} are visible"
        elif not shown and transaction.values and transaction.outcome is Outcome.ACKNOWLEDGED:
            yield f"lost transaction: {transaction.name} was committed, and nothing of it is visible"


def copied_wrongly(history: History) -> Iterator[Complaint]:
    for name, (source, target) in history.copied.items():
        wanted = Counter(
            (value.producer, value.number)
            for (topic, _), rows in history.final_committed.items()
            if topic == source
            for _, value in rows
        )
        got = Counter(
            (value.producer, value.number)
            for (topic, _), rows in history.final_committed.items()
            if topic == target
            for _, value in rows
        )
        for which, count in (wanted - got).items():
            yield f"not copied: {which} of {source} is missing {count} times in {target} ({name})"
        for which, count in (got - wanted).items():
            yield f"copied twice: {which} is {count} times too often in {target} ({name})"


def offsets_of_deleted_topics(history: History) -> Iterator[Complaint]:
    for life in history.lives:
        if not life.is_over:
            continue
        for group in life.groups:
            for (topic, partition), offset in sorted(history.final_offsets.get(group, {}).items()):
                if topic == life.topic:
                    yield (
                        f"offset of a deleted topic: {group} has {offset} for {topic}-{partition}, committed"
                        f" in its life {life.number}"
                    )


CHECKS: tuple[Callable[[History], Iterator[Complaint]], ...] = (
    lost,
    duplicated,
    reordered,
    inconsistent,
    skipped_or_backward,
    torn_transactions,
    copied_wrongly,
    lost_without_a_failover,
    acknowledged_out_of_time,
    offsets_of_deleted_topics,
    stuck_last_stable_offsets,
    hanging_transactions,
)


def complaints_about(history: History) -> list[Complaint]:
    return [complaint for check in CHECKS for complaint in check(history)]
