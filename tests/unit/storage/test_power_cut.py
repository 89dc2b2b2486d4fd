"""Random lives of a log, with power cuts, against a simple model.

In every case the recovered log is a prefix of the appended batches, of whole and valid
batches, with everything in it that had been synced; offsets are what they were; epochs,
producers and aborted transactions agree with the batches.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.records.batch import RecordBatch
from barnabas.storage.files.names import OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log.truncation import truncate_to
from tests.support.power_cut_files import PowerCutFiles
from tests.support.slices import offset_for_timestamp
from tests.unit.storage.support import NOW_MS, Bench, batch, end_transaction, read_batches

ROOT = "/disk"


@dataclass
class Appended:
    base_offset: int
    last_offset: int
    leader_epoch: int
    content: bytes


class Life:
    """One log, what should be in it, and the dice."""

    def __init__(self, seed: int, *, has_gaps: bool = False) -> None:
        self.has_gaps = has_gaps
        """A follower of a log that was compacted: offsets are missing here and there."""
        self.chance = random.Random(seed)
        self.files = PowerCutFiles(seed)
        self.files.make_lasting_directory(ROOT)
        self.files.sync_directory("")
        self.bench = Bench(
            ROOT,
            self.files,
            segment_bytes=self.chance.choice([700, 2_000, 6_000]),
            index_interval_bytes=self.chance.choice([0, 200, 1_000]),
            flush_messages=self.chance.choice([1, 7, 1 << 62]),
            retention_ms=-1,
        )
        self.log = self.bench.open()
        self.model: list[Appended] = []
        self.aborted: list[tuple[int, int, int]] = []
        self.producers: dict[int, list[str]] = {0: []}
        self.sequences: dict[int, int] = {}
        self.open_transactions: dict[int, int] = {}
        self.epoch = 0
        self.checkpointed_recovery_point = 0
        self.checkpointed_start = 0

    # -- what can happen ----------------------------------------------------------------------

    def append(self) -> None:
        producer_id = self.chance.choice([-1, -1, 1, 2, 3])
        count = self.chance.randint(1, 4)
        fields: dict[str, Any] = {}
        if producer_id > 0:
            fields = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer_id, 0),
                "is_transactional": producer_id == 3 or producer_id in self.open_transactions,
            }
            self.sequences[producer_id] = fields["base_sequence"] + count
        if self.has_gaps:
            fields["base_offset"] = self.log.log_end_offset + self.chance.choice([0, 0, 0, 1, 30])
            fields["leader_epoch"] = self.epoch
        content = batch(
            [self.chance.randbytes(self.chance.randint(0, 120)) for _ in range(count)],
            timestamp=NOW_MS + self.chance.randint(0, 10_000),
            **fields,
        )
        if self.has_gaps:
            info = self.log.append_as_follower(content)
        else:
            info = self.log.append_as_leader(content, leader_epoch=self.epoch)
        if fields.get("is_transactional"):
            self.open_transactions.setdefault(producer_id, info.first_offset)
        self.remember(info.first_offset, info.last_offset, bytes(content))

    def mark(self) -> None:
        if not self.open_transactions:
            return
        producer_id = self.chance.choice(sorted(self.open_transactions))
        commit = self.chance.random() < 0.5
        info = end_transaction(self.log, producer_id, commit=commit, epoch=self.epoch)
        first = self.open_transactions.pop(producer_id)
        if not commit:
            self.aborted.append((producer_id, first, info.first_offset))
        (found,) = read_batches(self.log, info.first_offset)
        self.remember(info.first_offset, info.last_offset, bytes(found.view()))

    def remember(self, first: int, last: int, content: bytes) -> None:
        self.model.append(Appended(first, last, self.epoch, content))
        self.producers[last + 1] = self.facts()
        self.log.advance_high_watermark(self.log.log_end_offset)

    def facts(self) -> list[str]:
        return sorted(map(repr, self.log.active_producers()))

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()

    def new_leader(self) -> None:
        self.epoch += 1

    def checkpoint(self) -> None:
        self.checkpointed_recovery_point = self.log.flush_state.recovery_point
        self.checkpointed_start = self.log.log_start_offset

    def delete_records(self) -> None:
        if self.model:
            offset = self.chance.choice(self.model).base_offset
            self.log.maybe_increment_log_start_offset(offset, "test")
            delete_old_segments(self.log)

    def truncate(self) -> None:
        kept = self.chance.randint(max(0, len(self.model) - 5), len(self.model))
        if kept == len(self.model) or self.model[kept].base_offset < self.log.log_start_offset:
            return
        truncate_to(self.log, self.model[kept - 1].last_offset + 1 if kept else self.log.log_start_offset)
        self.forget(kept)
        self.checkpoint()
        self.epoch += 1

    def forget(self, kept: int) -> None:
        """The model now ends after `kept` batches."""
        del self.model[kept:]
        end = self.log.log_end_offset
        self.aborted = [entry for entry in self.aborted if entry[2] < end]
        self.producers = {offset: facts for offset, facts in self.producers.items() if offset <= end}
        self.open_transactions, self.sequences = {}, {}
        for entry in self.log.active_producers():
            self.sequences[entry.producer_id] = entry.last_sequence + 1
            if entry.current_txn_first_offset >= 0:
                self.open_transactions[entry.producer_id] = entry.current_txn_first_offset

    def close(self) -> None:
        self.log.close()
        self.checkpoint()
        self.log = self.bench.open(is_clean=True, log_start_offset=self.checkpointed_start)
        self.check_end()
        self.log.advance_high_watermark(self.log.log_end_offset)

    def lose_indexes(self) -> None:
        self.log.close()
        self.checkpoint()
        for suffix in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX):
            for name in self.bench.names(suffix):
                if self.chance.random() < 0.7 or suffix != OFFSET_INDEX:
                    self.files.unlink(f"{self.bench.directory}/{name}")
        self.checkpointed_recovery_point = 0
        self.log = self.bench.open(log_start_offset=self.checkpointed_start)
        self.log.advance_high_watermark(self.log.log_end_offset)

    def cut_power(self) -> None:
        synced, end = self.log.flush_state.recovery_point, self.log.log_end_offset
        self.files.cut_power()
        self.log = self.bench.open(
            recovery_point=self.checkpointed_recovery_point, log_start_offset=self.checkpointed_start
        )
        assert synced <= self.log.log_end_offset <= end, (
            "synced batches are lost, or others came from nowhere"
        )
        if self.log.log_end_offset == self.log.log_start_offset > synced and not self.facts():
            self.producers[self.log.log_end_offset] = []  # all behind the start was lost: it starts over
        kept = sum(entry.last_offset < self.log.log_end_offset for entry in self.model)
        self.forget(kept)
        self.log.advance_high_watermark(self.log.log_end_offset)

    # -- what must be true --------------------------------------------------------------------

    def check(self) -> None:
        log = self.log
        expected = [entry for entry in self.model if entry.base_offset >= log.log_start_offset]
        found = read_batches(log)
        assert [bytes(b.view()) for b in found] == [entry.content for entry in expected]
        assert all(log.leader_epochs.epoch_for_offset(b.base_offset) == b.leader_epoch for b in found)
        self.check_end()
        assert self.facts() == self.producers[log.log_end_offset]
        aborted = [(p, first) for p, first, last in self.aborted if last >= log.log_start_offset]
        assert (
            list(map(tuple, aborted_transactions(log, log.log_start_offset, log.log_end_offset))) == aborted
        )
        first_open = min(self.open_transactions.values(), default=None)
        assert log.producers.first_unstable_offset == first_open
        self.check_times(found)

    def check_end(self) -> None:
        end_offset = self.model[-1].last_offset + 1 if self.model else 0
        if self.has_gaps and self.log.log_end_offset > end_offset:
            # Behind a gap a segment was begun, of which nothing is left.
            assert self.log.segments.active.size_bytes == 0
            self.producers[self.log.log_end_offset] = self.producers[end_offset]
        else:
            assert self.log.log_end_offset == end_offset

    def check_times(self, found: list[RecordBatch]) -> None:
        if found:
            newest = max(b.max_timestamp for b in found)
            (answer,) = [offset_for_timestamp(self.log, newest)]
            assert answer is not None
            holder = next(b for b in found if b.max_timestamp >= newest)
            assert holder.base_offset <= answer.offset <= holder.last_offset


WEIGHTS = {
    Life.append: 60,
    Life.mark: 8,
    Life.roll: 4,
    Life.flush: 5,
    Life.new_leader: 2,
    Life.checkpoint: 4,
    Life.delete_records: 2,
    Life.truncate: 3,
    Life.close: 2,
    Life.lose_indexes: 1,
    Life.cut_power: 5,
}


@pytest.mark.parametrize("seed", range(80))
def test_a_log_survives_random_faults(seed: int) -> None:
    life = Life(seed)
    events = life.chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=120)
    for number, event in enumerate(events):
        event(life)
        if event is not Life.append or number % 10 == 0:
            life.check()
    life.cut_power()
    life.check()


@pytest.mark.parametrize("seed", range(40))
def test_a_log_with_gaps_survives_random_faults(seed: int) -> None:
    """A gap is no damage, and damage is no gap: behind a segment that lost its end nothing counts."""
    life = Life(seed, has_gaps=True)
    events = life.chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=120)
    for number, event in enumerate(events):
        event(life)
        if event is not Life.append or number % 10 == 0:
            life.check()
    life.cut_power()
    life.check()
