"""Random lives of a compacted log against a model that remembers everything.

After any number of runs: every record that is read was written, at that offset; the last
committed value of each key is there; readers of committed data see nothing of what was
aborted; beyond the clean part every record is there that was not aborted; and a restart, even
without any derived file, finds the same producers at the same sequences.

Keys are few or many, and the offset map holds few of them or all: so a map is full at the end of
a segment, in its middle, and in the middle of a transaction.
"""

from __future__ import annotations

import random

import pytest

from barnabas.records.compression import Codec
from barnabas.records.record import Record, iterate_records
from barnabas.storage.cleaner.cleaning import OffsetMapTooSmall
from barnabas.storage.cleaner.offset_map import SLOT_BYTES
from barnabas.storage.files.names import OFFSET_INDEX, PRODUCER_SNAPSHOT, TIME_INDEX, TRANSACTION_INDEX
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.cleaner.support import committed, compact, put, records, settle
from tests.unit.storage.support import NOW_MS, Bench, end_transaction, read_batches

RETENTION_MS = 1_000


class Life:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        files = PowerCutFiles(seed)
        files.make_lasting_directory("/disk")
        self.bench = Bench(
            "/disk",
            files,
            cleanup_policy=("compact",),
            segment_bytes=self.chance.choice([600, 2_000, 1 << 20]),
            index_interval_bytes=self.chance.choice([0, 300]),
            delete_retention_ms=RETENTION_MS,
        )
        self.key_count = self.chance.choice([13, 120])
        self.log = self.bench.open()
        self.clean_to: int | None = None
        self.written: dict[int, Record] = {}
        self.offsets_aborted: set[int] = set()
        self.open: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}

    def append(self) -> None:
        producer_id = self.chance.choice([-1, -1, 1, 2, 3])
        pairs = [
            (
                f"key-{self.chance.randrange(self.key_count)}",
                None if self.chance.random() < 0.15 else f"{self.chance.random()}",
            )
            for _ in range(self.chance.randint(1, 6))
        ]
        fields: dict[str, object] = {"codec": self.chance.choice([Codec.NONE, Codec.NONE, Codec.ZSTD])}
        if producer_id > 0:
            is_transactional = producer_id != 1
            fields |= {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer_id, 0),
                "is_transactional": is_transactional,
            }
            self.sequences[producer_id] = self.sequences.get(producer_id, 0) + len(pairs)
        timestamp = self.bench.clock.now_ms() + self.chance.randint(-500, 500)
        base = put(self.log, *pairs, timestamp=timestamp, **fields)
        for number, (key, value) in enumerate(pairs):
            self.written[base + number] = Record(
                base + number, timestamp + number, key.encode(), None if value is None else value.encode()
            )
        if fields.get("is_transactional"):
            self.open.setdefault(producer_id, []).extend(range(base, base + len(pairs)))

    def end_transaction(self) -> None:
        if self.open:
            producer_id = self.chance.choice(sorted(self.open))
            commit = self.chance.random() < 0.5
            end_transaction(self.log, producer_id, commit=commit)
            offsets = self.open.pop(producer_id)
            if not commit:
                self.offsets_aborted.update(offsets)

    def clean(self) -> None:
        settle(self.log)
        stable = self.log.last_stable_offset
        before = records(self.log)
        slots = self.chance.choice([8, 16, 40, 64, 1 << 16])
        try:
            self.clean_to = compact(self.bench, self.log, self.clean_to, buffer_bytes=slots * SLOT_BYTES)
        except OffsetMapTooSmall:
            assert records(self.log) == before
            return
        assert self.clean_to <= stable
        after = records(self.log)
        assert [each for each in after if each.offset >= stable] == [
            each for each in before if each.offset >= stable
        ]
        assert self.without_aborted(after, self.clean_to) == self.without_aborted(before, self.clean_to)
        self.check()

    def without_aborted(self, found: list[Record], start_offset: int) -> list[Record]:
        return [
            each for each in found if each.offset >= start_offset and each.offset not in self.offsets_aborted
        ]

    def pass_time(self) -> None:
        self.bench.clock.advance(self.chance.choice([1, RETENTION_MS // 2, RETENTION_MS]))

    def check(self) -> None:
        found = records(self.log)
        assert [record.offset for record in found] == sorted(record.offset for record in found)
        assert all(self.written[record.offset] == record for record in found)
        stable = self.log.last_stable_offset
        latest: dict[bytes | None, Record] = {}
        for offset, record in self.written.items():
            if offset < stable and offset not in self.offsets_aborted:
                latest[record.key] = record
        seen = committed(self.log)
        assert not {record.offset for record in seen} & self.offsets_aborted
        wanted = {key: record for key, record in latest.items() if record.value is not None}
        last_seen = {record.key: record for record in seen}
        assert {key: record for key, record in last_seen.items() if record.value is not None} == wanted
        for record in seen:  # a value that lost its tombstone would have come back to life
            final = latest[record.key]
            assert final.value is not None or record.offset <= final.offset
            if final.value is None and record.offset < final.offset:
                assert last_seen[record.key] == final
        self.check_horizons()

    def check_horizons(self) -> None:
        """The time of a tombstone begins when nothing before it is left of its key."""
        keys: set[bytes | None] = set()
        for batch in read_batches(self.log):
            for record in () if batch.is_control else iterate_records(batch):
                if batch.has_delete_horizon and record.value is None:
                    assert record.key not in keys
                keys.add(record.key)

    def reopen(self) -> None:
        before = self.sequences_known()
        aborted = committed(self.log)
        self.log.close()
        if self.chance.random() < 0.5:
            for suffix in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, PRODUCER_SNAPSHOT):
                for name in self.bench.names(suffix):
                    self.bench.files.unlink(f"{self.bench.directory}/{name}")
            self.log = self.bench.open()
        else:
            self.log = self.bench.open(is_clean=True)
        assert self.sequences_known() == before
        self.log.advance_high_watermark(self.log.log_end_offset)
        assert committed(self.log) == aborted

    def sequences_known(self) -> dict[int, tuple[int, int, int]]:
        return {
            entry.producer_id: (entry.producer_epoch, entry.last_sequence, entry.last_data_offset)
            for entry in self.log.active_producers()
        }


@pytest.mark.parametrize("seed", range(60))
def test_a_compacted_log_agrees_with_its_model(seed: int) -> None:
    life = Life(seed)
    deeds = [life.append] * 10 + [life.end_transaction] * 3 + [life.clean, life.pass_time, life.reopen]
    for _ in range(120):
        life.chance.choice(deeds)()
        life.log.advance_high_watermark(life.log.log_end_offset)
    life.clean()
    assert life.bench.clock.now_ms() > NOW_MS
