"""No record costs a partition: an unreadable one is set aside, counted and logged, and loading goes on."""

from __future__ import annotations

import logging
from struct import pack

import pytest

from barnabas.coordinator.group.state.record_schemas import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
)
from barnabas.coordinator.group.state.records import GroupRecord
from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX, STRING_BYTES_MAX
from barnabas.core.reporting.metrics import Metrics
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import BatchBuilder
from tests.unit.coordinator.support import Groups, MemoryLog
from tests.unit.coordinator.transaction_support import Transactions

OFFSET_KEY = b"\0\1" + pack(">h", 1) + b"g" + pack(">h", 1) + b"t" + pack(">i", 0)
GROUP_KEY, GROUP_VALUE = GroupRecord(
    GroupMetadataKey(group="x"), GroupMetadataValue(protocol_type="consumer")
).encode()
MEMBER_KEY, MEMBER_VALUE = GroupRecord(
    ConsumerGroupMemberMetadataKey(group_id="x", member_id="m"),
    ConsumerGroupMemberMetadataValue(client_id="c"),
).encode()
assert GROUP_VALUE is not None
assert MEMBER_VALUE is not None

UNREADABLE = {
    "an offset without a partition": (OFFSET_KEY[:-4], b"\0\3" + bytes(22)),
    "an offset of a short key": (b"\0\1", b"\0\3" + bytes(22)),
    "an offset with a value cut short": (OFFSET_KEY, b"\0\3"),
    "an offset of an unknown version": (OFFSET_KEY, b"\0\x63" + bytes(30)),
    "a key that only a newer broker knows": (b"\0\x63" + b"abc", b"\0\0"),
    "a key of nothing but its version": (b"\0\5", b"\0\0"),
    "a group cut short": (GROUP_KEY, GROUP_VALUE[:-3]),
    "a group of an unknown version": (GROUP_KEY, b"\0\x63" + GROUP_VALUE[2:]),
    "a client id of 98,301 bytes": (
        MEMBER_KEY,
        MEMBER_VALUE.replace(b"\2c", b"\xfe\xff\5" + b"\xef\xbf\xbd" * 32_767, 1),
    ),
}


def append(log: MemoryLog, *records: tuple[bytes, bytes | None], producer_id: int = -1) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=min(producer_id, 0), is_transactional=producer_id >= 0
    )
    for key, value in records:
        builder.append(key, value, (), 0)
    batch = builder.build()
    batch[:8] = log.log_end_offset.to_bytes(8, "big")
    log.batches.append(batch)
    log.log_end_offset = log.high_watermark = RecordBatch(batch).next_offset
    return batch


def set_aside(metrics: Metrics, topic: str) -> int:
    name = "barnabas_coordinator_records_set_aside_total"
    return metrics.counter(name, "", topic=topic).value


PLAIN = [(what, -1) for what in UNREADABLE]
TRANSACTIONAL = [(what, 7) for what, (key, _) in UNREADABLE.items() if key[:2] <= b"\0\1"]


@pytest.mark.parametrize(("what", "producer_id"), PLAIN + TRANSACTIONAL)
def test_a_record_that_cannot_be_read_costs_nothing_but_itself(
    what: str, producer_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups()
    groups.commit(41, group="before")
    key, value = UNREADABLE[what]
    bad_offset = groups.log.log_end_offset
    append(groups.log, (key, value), producer_id=producer_id)
    after = Groups(log=groups.log)
    after.commit(42, group="after")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        again = Groups(log=groups.log)
    assert (again.fetch(group="before"), again.fetch(group="after")) == (41, 42)
    assert set_aside(again.metrics, "__consumer_offsets") == 1
    (line,) = [each.getMessage() for each in caplog.records if "is left out" in each.getMessage()]
    assert line.startswith(
        f"partition __consumer_offsets-0: the record at offset {bad_offset} cannot be read"
    )
    assert again.join().value.member_id


def test_records_behind_the_unreadable_one_in_its_batch_are_loaded() -> None:
    groups = Groups()
    good_key = OFFSET_KEY[:-4] + pack(">i", 5)
    good_value = pack(">hqihq", 3, 17, -1, 0, 0)
    append(groups.log, (OFFSET_KEY, b"\0\3"), (GROUP_KEY, b""), (good_key, good_value))
    again = Groups(log=groups.log)
    assert again.fetch(partition=5) == 17
    assert set_aside(again.metrics, "__consumer_offsets") == 2


def test_a_batch_that_is_broken_inside_costs_no_other_batch() -> None:
    groups = Groups()
    groups.commit(1, group="before")
    batch = append(groups.log, (OFFSET_KEY, b"\0\3"))
    batch[57:61] = (9).to_bytes(4, "big")  # it says that nine records are in it
    groups = Groups(log=groups.log)
    groups.commit(2, group="after")
    again = Groups(log=groups.log)
    assert (again.fetch(group="before"), again.fetch(group="after")) == (1, 2)
    assert set_aside(again.metrics, "__consumer_offsets") == 2


def test_a_transactional_id_that_cannot_be_read_costs_nothing_but_itself() -> None:
    transactions = Transactions()
    append(transactions.log, (b"\0\0" + pack(">h", 2) + b"tx", b"\0\0"), (b"\0\x63", b"\0\0"), (b"\0", b""))
    Transactions(log=transactions.log).init("other")
    again = Transactions(log=transactions.log)
    assert list(again.known) == ["other"]
    assert set_aside(again.metrics, "__transaction_state") == 3


@pytest.mark.parametrize("client", ["\ufffd" * STRING_BYTES_MAX, "x" * STRING_BYTES_MAX])
@pytest.mark.parametrize("protocol", ["classic", "static", "consumer"])
def test_a_client_id_of_any_length_is_stored_so_that_it_can_be_read(client: str, protocol: str) -> None:
    groups = Groups(initial_rebalance_delay_ms=0)
    if protocol == "consumer":
        assert groups.beat("m", 0, topics=["t"], client=client).error_code == 0
    else:
        instance = None if protocol == "classic" else "i" * STRING_BYTES_MAX
        first = groups.join(instance=instance, client=client)
        member: str = first.value.member_id if instance is None else ""
        joined = first if instance else groups.join(member=member, client=client)
        groups.advance(1)
        member = joined.value.member_id
        assert len(member) <= NAME_CHARS_REMEMBERED_MAX + 37
        assert (
            groups.sync(member, joined.value.generation_id, {member: b""}, instance=instance).error_code == 0
        )
    again = Groups(log=groups.log)
    assert set_aside(again.metrics, "__consumer_offsets") == 0
    found = again.shard.groups["g"]
    (stored,) = found.members.values()
    assert stored.client_id == client[:NAME_CHARS_REMEMBERED_MAX]
