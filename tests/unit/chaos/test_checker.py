"""The checker finds each kind of anomaly, and nothing in a history without any."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.checker import complaints_about
from tests.chaos.history import (
    History,
    Life,
    OpenTransaction,
    Outcome,
    Place,
    Producer,
    Reading,
    Transaction,
    Undecided,
    Value,
    Write,
)
from tests.chaos.replicas import producers

from barnabas.records.builder import build_batch

ONE, TWO, THREE = (Value("p", number) for number in range(3))


def history() -> History:
    """Three values written, acknowledged and read; the first two copied in a transaction."""
    copies = [Value("p", number, "t1") for number in range(3)]
    return History(
        writes=[
            Write(value, "in", 0, Outcome.ACKNOWLEDGED, offset)
            for offset, value in enumerate((ONE, TWO, THREE))
        ],
        readings=[Reading("c", "in", 0, [(0, ONE), (1, TWO), (2, THREE)])],
        transactions=[Transaction("t1", copies, Outcome.ACKNOWLEDGED)],
        final={("in", 0): [(0, ONE), (1, TWO), (2, THREE)], ("out", 0): list(enumerate(copies))},
        final_committed={("in", 0): [(0, ONE), (1, TWO), (2, THREE)], ("out", 0): list(enumerate(copies))},
        copied={"copier": ("in", "out")},
        lives=[Life("again", 0, ["g"])],
        final_offsets={"g": {("again", 0): 1_000}},
    )


def test_a_good_history_has_nothing_to_complain_about() -> None:
    assert complaints_about(history()) == []


def _lose(of: History) -> None:
    of.writes.append(Write(Value("p", 9), "in", 0, Outcome.ACKNOWLEDGED, 3))


def _duplicate(of: History) -> None:
    of.final["in", 0].append((3, THREE))


def _reorder(of: History) -> None:
    of.final_committed["in", 0] = [(0, TWO), (1, ONE), (2, THREE)]


def _move(of: History) -> None:
    of.writes[0].offset = 1


def _phantom(of: History) -> None:
    of.readings[0].seen.append((3, Value("p", 7)))


def _disagree(of: History) -> None:
    of.readings[0].seen[1] = (1, THREE)


def _skip(of: History) -> None:
    del of.readings[0].seen[1]


def _go_back(of: History) -> None:
    of.readings[0].seen.append((1, TWO))


def _abort(of: History) -> None:
    of.transactions[0].outcome = Outcome.REFUSED


def _tear(of: History) -> None:
    of.final_committed["out", 0].pop()


def _hide(of: History) -> None:
    of.final_committed["out", 0].clear()


def _copy_twice(of: History) -> None:
    of.final_committed["out", 0].append((7, Value("p", 0, "t2")))


def _keep_offset(of: History) -> None:
    of.lives[0].is_over = True


def _hang(of: History) -> None:
    of.undecided.append(Undecided("out", 0, 2, 3, [OpenTransaction(7, 0, 2, "CompleteCommit")]))


def _hang_unknown(of: History) -> None:
    of.undecided.append(Undecided("out", 0, 2, 3, [OpenTransaction(7, 0, 2)]))


def _stay_prepared(of: History) -> None:
    of.undecided.append(Undecided("out", 0, 2, 3, [OpenTransaction(7, 0, 2, "PrepareCommit")]))


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (_lose, "lost:"),
        (_duplicate, "duplicated:"),
        (_reorder, "reordered:"),
        (_move, "inconsistent:"),
        (_phantom, "phantom:"),
        (_disagree, "inconsistent:"),
        (_skip, "skipped:"),
        (_go_back, "backward:"),
        (_abort, "aborted read:"),
        (_tear, "torn:"),
        (_hide, "lost transaction:"),
        (_tear, "not copied:"),
        (_copy_twice, "copied twice:"),
        (_keep_offset, "offset of a deleted topic:"),
        (_hang, "stuck last stable offset:"),
        (_hang, "hanging transaction:"),
        (_hang_unknown, "hanging transaction:"),
        (_stay_prepared, "stuck last stable offset:"),
    ],
)
def test_each_anomaly_is_found(spoil, kind: str) -> None:  # type: ignore[no-untyped-def]
    spoiled = history()
    spoil(spoiled)
    assert any(complaint.startswith(kind) for complaint in complaints_about(spoiled))


def test_a_transaction_that_its_coordinator_is_at_work_on_does_not_hang() -> None:
    late = history()
    _stay_prepared(late)
    assert not any(each.startswith("hanging") for each in complaints_about(late))


def test_an_aborted_attempt_may_be_made_again() -> None:
    again = history()
    again.transactions.append(Transaction("t0", [Value("p", 2, "t0")], Outcome.REFUSED))
    again.final["out", 0].insert(0, (0, Value("p", 2, "t0")))
    assert complaints_about(again) == []


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    unsure = history()
    unsure.writes.append(Write(Value("p", 4), "in", 0, Outcome.UNKNOWN))
    assert complaints_about(unsure) == []
    unsure.final["in", 0].append((3, Value("p", 4)))
    assert complaints_about(unsure) == []


def _send_again(of: History, *, epochs: tuple[int, int], copies: int) -> None:
    """The first two values are in the log a second time, and copied as often as `copies` says."""
    for topics in (of.final, of.final_committed):
        topics["in", 0] += [(3, ONE), (4, TWO)]
        topics["out", 0] += [(2 + number, Value("p", number, "t1")) for number in range(2)] * (copies - 1)
    of.producers |= {
        Place("in", 0, offset): Producer(7, epochs[offset > 2]) for offset, _ in of.final["in", 0]
    }


def test_a_client_with_several_requests_in_flight_may_write_twice_under_the_next_epoch() -> None:
    found = history()
    found.pipelining = {"p"}
    _send_again(found, epochs=(0, 1), copies=2)
    assert complaints_about(found) == []


@pytest.mark.parametrize(
    ("pipelining", "epochs", "copies", "kinds"),
    [
        ({"p"}, (0, 0), 2, {"duplicated", "reordered"}),
        ({"p"}, (1, 0), 2, {"duplicated", "reordered"}),
        (set(), (0, 1), 2, {"duplicated", "reordered"}),
        ({"p"}, (0, 1), 3, {"duplicated", "copied twice"}),
        ({"p"}, (0, 1), 1, {"not copied"}),
    ],
)
def test_whatever_else_is_there_twice_is_not(
    pipelining: set[str], epochs: tuple[int, int], copies: int, kinds: set[str]
) -> None:
    found = history()
    found.pipelining = pipelining
    _send_again(found, epochs=epochs, copies=copies)
    assert {each.split(":")[0] for each in complaints_about(found)} == kinds


def test_of_a_duplicate_it_is_told_who_wrote_it() -> None:
    found = history()
    _duplicate(found)
    for offset in (2, 3):
        found.producers[Place("in", 0, offset)] = Producer(7, 0)
    (complaint,) = [each for each in complaints_about(found) if each.startswith("duplicated: ")]
    assert complaint.endswith("written by producer 7 in epoch 0, 7 in epoch 0")


def test_who_wrote_is_read_from_the_log(tmp_path: Path) -> None:
    records = [(None, b"v", (), 1_000)] * 2
    first = build_batch(records, producer_id=7, producer_epoch=1, base_sequence=0)
    second = build_batch(records, base_offset=2)
    (tmp_path / "00000000000000000000.log").write_bytes(bytes(first) + bytes(second))
    assert producers(tmp_path, "in", 0) == {
        Place("in", 0, offset): Producer(7, 1) if offset < 2 else Producer(-1, -1) for offset in range(4)
    }
