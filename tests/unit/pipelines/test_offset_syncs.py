"""Translation of committed offsets: exact where it can be, never too late."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from barnabas.pipelines.state.offset_syncs import SLOTS, Sync, keys_of, place_of, translated


@dataclass
class Partition:
    """A source partition with gaps, and its copy with other gaps, as transactions make them."""

    source: list[int] = field(default_factory=list)
    copy: list[int] = field(default_factory=list)
    """Offsets of the same records."""
    notes: dict[str, Sync] = field(default_factory=dict)

    def right(self, committed: int) -> int:
        """The offset from which a consumer of the copy reads what one of the source would."""
        behind = [at for offset, at in zip(self.source, self.copy, strict=True) if offset >= committed]
        return behind[0] if behind else self.copy[-1] + 1


def made(seed: int, batches: int, *, gaps: bool) -> Partition:
    chance, found = random.Random(seed), Partition()
    end = at = 0
    for batch in range(batches):
        begin, base = end, at
        for _ in range(chance.randint(1, 5)):
            end += chance.randint(0, 2) if gaps else 0
            found.source.append(end)
            found.copy.append(at)
            end, at = end + 1, at + 1
        note = Sync(begin if batch else None, end, base, at - base)
        for key in keys_of("g", "t", 0, batch):
            if chance.random() < 0.9:
                found.notes.pop(key, None)  # the last record of a key is at its place of writing
                found.notes[key] = note
        at += chance.randint(1, 3)  # markers, and attempts that were aborted
    return found


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("gaps", [False, True])
def test_no_record_is_left_out_whatever_the_gaps(seed: int, gaps: bool) -> None:
    found = made(seed, 200, gaps=gaps)
    for committed in range(found.source[-1] + 2):
        here = translated(committed, found.notes.values())
        if here is not None:
            assert here <= found.right(committed)
    assert translated(found.source[-1] + 1, found.notes.values()) is not None


def test_a_translation_is_exact_without_gaps_and_at_the_ends_of_batches() -> None:
    notes = [Sync(None, 10, 0, 10), Sync(10, 20, 11, 10), Sync(20, 40, 22, 15)]
    assert [translated(at, notes) for at in (10, 11, 19, 20, 40, 99)] == [11, 12, 20, 22, 37, 37]
    assert translated(30, notes) == 22 + 5  # ten offsets on, of which five may be gaps
    assert translated(5, notes) is None
    assert translated(0, []) is None


def test_notes_are_bounded_dense_at_the_end_and_sparse_before() -> None:
    keys: dict[str, int] = {}
    for batch in range(300_000):
        keys.update(dict.fromkeys(keys_of("a/group", "t.opic", 3, batch), batch))
    assert len(keys) == 3 * SLOTS
    assert {place_of(key) for key in keys} == {("a/group", "t.opic", 3)}
    assert set(range(300_000 - SLOTS, 300_000)) <= set(keys.values())
    assert min(keys.values()) <= 300_000 - SLOTS**3 + SLOTS**2


def test_notes_of_a_former_copy_translate_nothing() -> None:
    """The copy was deleted and made again: its offsets begin at 0, and old notes lead too far."""
    former = [Sync(None, 1_000, 0, 1_000), Sync(1_000, 2_000, 1_001, 1_000)]
    present = [Sync(2_000, 2_100, 0, 100), Sync(2_100, 9_000, 101, 6_900)]
    notes = [*former, *present]
    assert translated(1_500, notes) is None
    assert translated(2_050, notes) == 50
    assert translated(9_000, notes) == 101 + 6_900


def test_notes_of_a_former_source_do_not_hide_those_of_the_present() -> None:
    """The source topic was deleted and made again, and its records follow the former ones in the copy."""
    former = [Sync(None, 1_000, 0, 1_000), Sync(1_000, 2_000, 1_001, 1_000)]
    present = [Sync(0, 50, 2_002, 50), Sync(50, 90, 2_053, 40)]
    notes = [*former, *present]
    assert translated(20, notes) == 2_022
    assert translated(60, notes) == 2_063
    assert translated(500, notes) == 2_093
