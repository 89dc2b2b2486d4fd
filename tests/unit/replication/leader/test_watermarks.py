"""The order of the offsets of a partition, whatever happens to it."""

from __future__ import annotations

import random

import pytest

from barnabas.core.errors import FencedLeaderEpoch
from barnabas.testing.files import PowerCutFiles
from tests.support.background import ManualBackground
from tests.unit.replication.support import Replicas, at, fetch_params, offsets_of
from tests.unit.storage.support import end_transaction


@pytest.mark.parametrize("seed", range(20))
def test_the_high_watermark_never_goes_back_and_nobody_sees_past_it(seed: int) -> None:
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
