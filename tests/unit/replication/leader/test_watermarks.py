"""Order of a partition's offsets under all events."""

from __future__ import annotations

import random

import pytest

from barnabas.core.errors import FencedLeaderEpoch
from tests.support.background import ManualBackground
from tests.support.power_cut_files import PowerCutFiles
from tests.support.settings import log_config
from tests.unit.replication.support import ME, ONE, OTHER, ZERO, Replicas, at, fetch_params, offsets_of
from tests.unit.storage.support import end_transaction


@pytest.mark.parametrize("seed", range(20))
def test_the_high_watermark_never_goes_back_and_no_consumer_sees_past_it(seed: int) -> None:
    chance = random.Random(seed)
    disk = ManualBackground()
    replicas = Replicas(
        "/disk", files=PowerCutFiles(seed), background=disk, flush_messages=chance.choice([1, 3, 1 << 62])
    )
    partition = replicas.lead()
    log = partition.log
    epoch = highest = 0
    sequences = {1: 0, 2: 0}
    for _ in range(150):
        event = chance.random()
        producer_id = chance.choice([1, 2])
        if event < 0.5:
            replicas.append(
                partition,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                is_transactional=True,
            )
            sequences[producer_id] += 1
        elif event < 0.65 and log.producers.has_ongoing_transaction(producer_id):
            end_transaction(log, producer_id, commit=chance.random() < 0.5, epoch=epoch)
            partition.maybe_advance_high_watermark()
        elif event < 0.85 and disk.waiting:
            disk.run_one()
        elif event < 0.9:
            epoch += 1
            replicas.lead(epoch=epoch)
        elif event < 0.95:
            partition.delete_records_before(chance.randint(log.log_start_offset, log.high_watermark))
        assert log.high_watermark >= highest, "it went back"
        highest = log.high_watermark
        assert log.log_start_offset <= log.last_stable_offset <= highest
        assert highest <= log.durable_end_offset <= log.log_end_offset
        for committed, end in ((False, highest), (True, log.last_stable_offset)):
            (read,) = replicas.reader.read(fetch_params(read_committed=committed), [at(log.log_start_offset)])
            assert all(last < end for _, last in offsets_of(read)), "somebody saw too much"


def test_a_leader_of_the_past_is_refused(tmp_path: object) -> None:
    replicas = Replicas(str(tmp_path))
    partition = replicas.lead(epoch=5)
    with pytest.raises(FencedLeaderEpoch):
        replicas.lead(epoch=4)
    assert partition.leadership.leader_epoch == 5


def test_a_lower_min_insync_replicas_commits_what_waited(tmp_path: object) -> None:
    """Readers go on at once, not when the next record is appended."""
    replicas = Replicas(str(tmp_path), min_insync_replicas=2)
    partition = replicas.lead(isr=(ME,))
    replicas.dead.add(OTHER)
    replicas.ask(at(0), max_wait_ms=10_000)
    replicas.append(partition, b"a", b"b")
    assert (partition.log.high_watermark, replicas.answered) == (0, [])
    replicas.update_log_config("topic", log_config(min_insync_replicas=1))
    assert partition.log.high_watermark == 2
    ((read,),) = replicas.answered
    assert read.high_watermark == 2


def test_a_follower_that_moves_the_high_watermark_wakes_a_consumer(tmp_path: object) -> None:
    replicas = Replicas(str(tmp_path))
    partition = replicas.lead(isr=(ME, OTHER))
    replicas.fetched(partition, OTHER, 0)
    replicas.ask(at(0), max_wait_ms=10_000)
    replicas.append(partition)
    assert replicas.answered == [], "not committed yet"
    replicas.fetched(partition, OTHER, 1)
    ((read,),) = replicas.answered
    assert read.high_watermark == 1
    assert read.records is not None


def test_half_a_first_batch_is_returned_as_nothing(tmp_path: object) -> None:
    """Too few bytes are left for the second partition, and half a batch is of no use to a consumer."""
    replicas = Replicas(str(tmp_path))
    for key in (ZERO, ONE):
        size_bytes = replicas.append(replicas.lead(key)).size_bytes
    replicas.ask(at(0, ZERO), at(0, ONE), max_bytes=size_bytes + size_bytes // 2)
    ((first, second),) = replicas.answered
    assert first.records is not None
    assert first.records.length == size_bytes
    assert second.records is None
