"""Leaders die and others take over: no committed record is lost, and the logs become one again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.errors import OffsetNotAvailable, OutOfOrderSequenceNumber
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.records.builder import build_batch
from barnabas.storage.files.names import LOG
from barnabas.storage.log.aborted_transactions import aborted_transactions
from tests.scenario.replication.support import TOPIC, ZERO, Trio, eventually, trio
from tests.unit.storage.support import end_transaction


async def test_an_acknowledged_record_survives_its_leader(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        for number in range(10):
            assert (await cluster[1].produce(b"%d" % number)).error_code == 0
        await cluster[1].kill()
        await cluster.lead(2, epoch=1, isr=[2, 3])
        assert (await cluster[2].produce(b"after")).base_offset == 10
        assert cluster[2].bytes_of() == cluster[3].bytes_of()
        await cluster[1].restart()
        await cluster.lead(2, epoch=2, isr=[2, 3])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2, 3))
        assert cluster[1].bytes_of() == cluster[2].bytes_of()
        assert cluster[1].partition().log.leader_epochs.entries == [(0, 0), (1, 10)]


async def test_kip_101_a_follower_that_restarts_keeps_records_above_its_high_watermark(
    tmp_path: Path,
) -> None:
    """Scenario 1: by high watermark the follower would have thrown away what the leader had
    acknowledged, and then become the leader."""
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(2, epoch=0)
        await cluster[2].produce(b"m1")
        await cluster[2].produce(b"m2")
        follower = cluster[1]
        await follower.kill()
        await follower.restart()
        assert follower.logs.high_watermarks().get(ZERO, 0) < 2, "its checkpoint lags behind"
        cluster.cut_link(1, 2)
        await cluster.lead(2, epoch=1)
        await cluster[2].kill()
        await cluster.lead(1, epoch=2, isr=[1])
        assert follower.end() == 2
        assert follower.partition().log.high_watermark == 2


async def test_kip_101_a_previous_leader_drops_what_the_new_leader_never_had(tmp_path: Path) -> None:
    """Scenario 2: both lost power, the follower came back first and without the last record. The
    same offset then has two records; the epoch tells them apart."""
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"m1")
        first_bytes = len(cluster[2].bytes_of())
        await cluster[1].produce(b"m2")
        await cluster[1].kill()
        await cluster[2].kill()
        segment = tmp_path / "broker-2" / str(ZERO) / f"{0:020d}{LOG}"
        os.truncate(segment, first_bytes)
        await cluster[2].restart()
        assert cluster[2].logs.get(ZERO) is not None
        await cluster.lead(2, epoch=1, isr=[2])
        assert (await cluster[2].produce(b"m3")).base_offset == 1
        await cluster[1].restart()
        await cluster.lead(2, epoch=2, isr=[2])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        assert b"m2" not in cluster[1].bytes_of()
        assert cluster[1].bytes_of() == cluster[2].bytes_of()


async def _lead_alone(cluster: Trio, leader: int, epoch: int, *values: bytes) -> None:
    """Unclean election of which only the leader is notified."""
    await cluster.lead(leader, epoch=epoch, isr=[leader], tell=[leader])
    for value in values:
        assert (await cluster[leader].produce(value, acks=1)).error_code == 0


async def test_kip_279_histories_that_parted_twice_meet_again(tmp_path: Path) -> None:
    """The follower has epochs that the leader never saw, and the other way round: cutting by one
    answer alone would leave records of a lost epoch below the leader's."""
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"a")
        await cluster[1].produce(b"b")
        cluster.cut_link(1, 2)
        cluster.cut_link(2, 1)
        await _lead_alone(cluster, 2, 1, b"two-1", b"two-2")
        await _lead_alone(cluster, 1, 2, b"one-1", b"one-2")
        await _lead_alone(cluster, 2, 3, b"two-3", b"two-4")
        await _lead_alone(cluster, 1, 4, b"one-3")
        assert cluster[2].partition().log.leader_epochs.entries == [(0, 0), (1, 2), (3, 4)]
        cluster.mend_link(2, 1)
        await cluster.lead(1, epoch=5, isr=[1])
        await eventually(lambda: cluster.store.states[ZERO].isr == (1, 2))
        assert cluster[2].bytes_of() == cluster[1].bytes_of()
        assert b"two-" not in cluster[2].bytes_of()
        assert cluster[2].partition().log.leader_epochs.entries == [(0, 0), (2, 2), (4, 4)]
        assert cluster[2].end() == 5


async def test_a_follower_ahead_of_an_unclean_leader_gives_up_its_tail(tmp_path: Path) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"both")
        cluster.cut_link(2, 1)
        await cluster[1].produce(b"only one", acks=1)
        await cluster.lead(2, epoch=1, isr=[2])
        await eventually(lambda: cluster[1].end() == 1)
        assert (await cluster[2].produce(b"two")).base_offset == 1
        await eventually(lambda: cluster[1].bytes_of() == cluster[2].bytes_of())


async def test_sequences_are_known_to_the_next_leader(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        for sequence in range(4):
            await cluster[1].produce(
                b"%d" % sequence, producer_id=77, producer_epoch=0, base_sequence=sequence
            )
        await cluster[1].kill()
        await cluster.lead(2, epoch=1, isr=[2, 3])
        again = await cluster[2].produce(b"3", producer_id=77, producer_epoch=0, base_sequence=3)
        assert (again.error_code, again.base_offset) == (0, 3), "a retry is answered, not appended"
        gap = await cluster[2].produce(b"9", producer_id=77, producer_epoch=0, base_sequence=9)
        assert gap.error_code == OutOfOrderSequenceNumber.code
        assert cluster[2].end() == cluster[3].end() == 4


async def test_sequences_are_known_after_every_replica_was_killed(tmp_path: Path) -> None:
    """A client with five requests in flight has no answer to any, and sends all five again in order. After
    OUT_OF_ORDER_SEQUENCE_NUMBER it would take a new epoch and write them a second time."""
    producer: dict[str, Any] = {"producer_id": 77, "producer_epoch": 0}
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        for sequence in range(7):
            await cluster[1].produce(b"%d" % sequence, **producer, base_sequence=sequence)
        for number in (1, 2, 3):
            await cluster[number].kill()
        for number in (1, 2, 3):
            await cluster[number].restart()
        await cluster.lead(2, epoch=1)
        for sequence in range(2, 7):
            again = await cluster[2].produce(b"%d" % sequence, **producer, base_sequence=sequence)
            assert (again.error_code, again.base_offset) == (0, sequence)
        gap = await cluster[2].produce(b"8", **producer, base_sequence=8)
        assert gap.error_code == OutOfOrderSequenceNumber.code, "7 was refused or lost on its way"
        after = [await cluster[2].produce(b"%d" % each, **producer, base_sequence=each) for each in (7, 8)]
        assert [(each.error_code, each.base_offset) for each in after] == [(0, 7), (0, 8)]


async def test_a_second_failover_brings_back_what_the_first_one_lost(tmp_path: Path) -> None:
    """With acks=1 a record may survive that the leader in between never had, and the record that this leader
    acknowledged at the same offset is lost. All three brokers are in sync, and each leads rightly."""
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"all")
        cluster.cut_link(2, 1)
        assert (await cluster[1].produce(b"one", acks=1)).base_offset == 1
        await eventually(lambda: cluster[3].end() == 2)
        await cluster[1].kill()
        cluster.cut_link(3, 2)
        await cluster.lead(2, epoch=1, isr=[2, 3])
        assert (await cluster[2].produce(b"two", acks=1)).base_offset == 1
        await cluster.lead(3, epoch=2, isr=[2, 3])
        await eventually(lambda: cluster[2].bytes_of() == cluster[3].bytes_of())
        assert b"one" in cluster[2].bytes_of()
        assert b"two" not in cluster[2].bytes_of()
        for number in (2, 3):
            epochs = cluster[number].partition().log.leader_epochs.entries
            assert epochs == [(0, 0)], "epoch 1 leaves no trace"


@pytest.mark.parametrize("commit", [True, False])
async def test_an_open_transaction_is_known_to_the_next_leader(tmp_path: Path, commit: bool) -> None:
    async with trio(tmp_path, 2) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"plain")
        partition = cluster[1].partition()
        fields: dict[str, object] = {
            "producer_id": 5,
            "producer_epoch": 0,
            "base_sequence": 0,
            "is_transactional": True,
        }
        batch = await _transactional(cluster, fields)
        assert batch == 1
        await eventually(lambda: partition.log.high_watermark == 2)
        await cluster[1].kill()
        await cluster.lead(2, epoch=1, isr=[2])
        log = cluster[2].partition().log
        assert (log.high_watermark, log.last_stable_offset) == (2, 1)
        end_transaction(log, 5, commit=commit, epoch=1)
        cluster[2].partition().maybe_advance_high_watermark()
        assert log.last_stable_offset == 3
        aborted = aborted_transactions(log, 0, 3)
        assert [each.first_offset for each in aborted] == ([] if commit else [1])


async def _transactional(cluster: Trio, fields: dict[str, object]) -> int:
    """Append past the handler, which would ask a transaction coordinator."""
    leader = cluster[1]
    batch = build_batch([(None, b"in a transaction", (), leader.clock.now_ms())], **fields)  # type: ignore[arg-type]
    info = leader.partition().append(memoryview(batch), -1)
    leader.replicas.delayed.wake(ZERO)
    return info.first_offset


async def test_a_new_leader_does_not_tell_the_end_before_it_knows_it(tmp_path: Path) -> None:
    async with trio(tmp_path) as cluster:
        await cluster.lead(1, epoch=0)
        await cluster[1].produce(b"value")
        await cluster[1].kill()
        cluster.cut_link(3, 2)
        new_leader = cluster[2]
        await eventually(lambda: new_leader.end() == 1)
        new_leader.partition().log.update_high_watermark(0)
        await cluster.lead(2, epoch=1, isr=[2, 3])

        async def latest() -> int:
            ask = ListOffsetsPartition(partition_index=0, timestamp=-1)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[ask])]
            )
            answer = await new_leader.ask(request, ListOffsetsResponse)
            part = answer.topics[0].partitions[0]
            return part.offset if part.error_code == 0 else -part.error_code

        assert await latest() == -OffsetNotAvailable.code
        cluster.mend_link(3, 2)
        await eventually(lambda: new_leader.partition().log.high_watermark == 1)
        assert await latest() == 1
