"""After a restart everything loads, and the coordinators know what their logs say.

The offsets that the broker answers before its end, and those that it answers after its start, are the same:
memory equals a replay of the log. So are transactional ids with their producers, and the members of stable
groups with their assignments. Every record of both coordinators can be read, so no group is without its
coordinator. Time goes on meanwhile: members whose sessions end leave, and transactions are aborted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from barnabas.coordinator.group.offsets import records as offset_records
from barnabas.coordinator.group.state.records import UnknownRecord, decode_record
from barnabas.coordinator.transaction.state import records as transaction_records
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.schema.headers import read_response_header
from barnabas.protocol.schema.message import Message
from barnabas.records.batch import iterate_whole_batches
from barnabas.records.record import Record, iterate_records
from tests.fuzz.pool import GROUPS, TRANSACTIONS
from tests.fuzz.world import World
from tests.support import hostile

LOADED_S_MAX = 30.0
LOADING = frozenset({14, 15, 16})
STABLE, EMPTY = "Stable", "Empty"
ENDED_BY_TIME = frozenset({"Ongoing", "PrepareAbort", "PrepareCommit", "PrepareEpochFence"})
"""States of a transaction that go on without its producer; a new producer id may follow."""
Offsets = dict[tuple[str, str, int], int]


class Group(NamedTuple):
    state: str
    protocol: str
    assignments: dict[str, bytes]
    """By the ids of the members."""


class Transaction(NamedTuple):
    state: str
    producer_id: int


class Told(NamedTuple):
    """State of a broker's coordinators."""

    offsets: Offsets
    groups: dict[str, Group]
    transactions: dict[str, Transaction]


def ask(world: World) -> Told:
    """Once everything is loaded."""
    deadline_s = time.monotonic() + LOADED_S_MAX
    with world.connect("admin", LOADED_S_MAX) as admin:

        def answer(key: ApiKey, version: int, request: Message) -> Message:
            while True:
                admin.send(hostile.frame_of(key, version, request))
                raw = memoryview(admin.one_answer())
                _, position = read_response_header(raw, key, version)
                found = response_class(key).decode(raw, version, position)[0]
                codes = [getattr(found, "error_code", 0)]
                codes += [
                    each.error_code for each in getattr(found, "groups", ()) if hasattr(each, "error_code")
                ]
                if not LOADING & set(codes) or time.monotonic() > deadline_s:
                    assert not LOADING & set(codes), f"not loaded after {LOADED_S_MAX:.0f} s: {codes}"
                    return found
                time.sleep(0.05)

        for kind, names in enumerate((GROUPS, TRANSACTIONS)):
            for name in names:  # an administrator may have deleted the topic: the question makes it again
                admin.send(
                    hostile.frame_of(
                        ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=name, key_type=kind)
                    )
                )
                admin.one_answer()
        wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
        fetched = answer(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=wanted))
        offsets = {
            (group.group_id, topic.name, partition.partition_index): partition.committed_offset
            for group in fetched.groups  # type: ignore[attr-defined]
            for topic in group.topics
            for partition in topic.partitions
        }
        listed = answer(ApiKey.LIST_GROUPS, 0, ListGroupsRequest())
        listed_names = sorted(group.group_id for group in listed.groups)  # type: ignore[attr-defined]
        described = answer(ApiKey.DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups=listed_names))
        groups = {
            each.group_id: Group(
                each.group_state,
                each.protocol_data,
                {member.member_id: bytes(member.member_assignment) for member in each.members},
            )
            for each in described.groups  # type: ignore[attr-defined]
        }
        transactions = answer(ApiKey.LIST_TRANSACTIONS, 0, ListTransactionsRequest())
        return Told(
            offsets,
            groups,
            {
                each.transactional_id: Transaction(each.transaction_state, each.producer_id)
                for each in transactions.transaction_states  # type: ignore[attr-defined]
            },
        )


def unreadable(directory: Path) -> Iterator[str]:
    """Records of the coordinators that no broker could load."""
    for topic, decode in (
        ("__consumer_offsets", _decode_group_record),
        ("__transaction_state", transaction_records.decode_record),
    ):
        for file in sorted(directory.glob(f"logs/{topic}-*/*.log")):
            for record in _records(file):
                try:
                    decode(record.key or b"", record.value)
                except (UnknownRecord, transaction_records.UnknownRecord):
                    pass
                except Exception as error:
                    yield f"unreadable: {file.parent.name} at {record.offset}: {error!r}"


def _records(file: Path) -> Iterator[Record]:
    for batch in iterate_whole_batches(file.read_bytes()):
        if not batch.is_control:
            yield from iterate_records(batch)


def _decode_group_record(key: bytes, value: bytes | None) -> object:
    if not key.startswith((b"\0\0", b"\0\1")):
        return decode_record(key, value)
    return offset_records.decode_key(key), value and offset_records.decode_value(value)


def complaints(before: Told, after: Told) -> Iterator[str]:
    lost = {key: offset for key, offset in before.offsets.items() if after.offsets.get(key) != offset}
    if lost:
        yield f"offsets: {len(lost)} of {len(before.offsets)} differ after a restart: {sorted(lost)[:3]}"
    arisen = after.offsets.keys() - before.offsets.keys()
    if arisen:
        yield f"offsets: {len(arisen)} arise in a restart: {sorted(arisen)[:3]}"
    yield from _lost_transactions(before.transactions, after.transactions)
    yield from _changed_groups(before.groups, after.groups)


def _lost_transactions(before: dict[str, Transaction], after: dict[str, Transaction]) -> Iterator[str]:
    lost = sorted(before.keys() - after.keys())
    if lost:
        yield f"transactions: {lost} are lost in a restart"
    for name in sorted(before.keys() & after.keys()):
        was, now = before[name], after[name]
        if was.producer_id != now.producer_id and was.state not in ENDED_BY_TIME:
            yield f"transactions: {name} was {was}, and is {now} after a restart"


def _changed_groups(before: dict[str, Group], after: dict[str, Group]) -> Iterator[str]:
    for name in sorted(before.keys() & after.keys()):
        was, now = before[name], after[name]
        if was.state not in (STABLE, EMPTY):
            continue  # a generation is written when it is complete: until then the log has the one before
        arisen = now.assignments.keys() - was.assignments.keys()
        if arisen:
            yield f"groups: members {sorted(arisen)} of {name} arise in a restart"
        if was.state != STABLE or now.state != STABLE:
            continue
        kept = {member: was.assignments[member] for member in now.assignments if member not in arisen}
        if now.protocol != was.protocol or any(now.assignments[member] != kept[member] for member in kept):
            yield f"groups: {name} was {was}, and is {now} after a restart"
