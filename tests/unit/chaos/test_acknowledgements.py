"""The checker tells a record that was lost with its leader from one that nobody who leads had promised."""

from __future__ import annotations

import pytest
from tests.chaos.checker import complaints_about
from tests.chaos.direct_writing import settle
from tests.chaos.history import History, Outcome, Place, Value, Write

from barnabas.core.errors import NotLeaderOrFollower
from barnabas.protocol.messages.produce import PartitionProduceResponse

ACKNOWLEDGED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.UNKNOWN


def write(number: int, offset: int | None, began_s: float, answered_s: float, **changed: object) -> Write:
    fields: dict[str, object] = {"outcome": ACKNOWLEDGED, "acks": 1} | changed
    return Write(
        Value("direct", number),
        "single",
        0,
        offset=offset,
        began_s=began_s,
        answered_s=answered_s,
        **fields,  # type: ignore[arg-type]
    )


def history(*writes: Write, log: dict[int, tuple[int, int]]) -> History:
    """`log` is what is there at the end: by offset, which number, and its leader epoch."""
    return History(
        writes=list(writes),
        final={("single", 0): [(offset, Value("direct", number)) for offset, (number, _) in log.items()]},
        epochs={Place("single", 0, offset): epoch for offset, (_, epoch) in log.items()},
    )


def kinds(of: History) -> list[str]:
    return [complaint.split(":")[0] for complaint in complaints_about(of)]


def test_what_was_lost_with_its_leader_was_promised_by_nobody_else() -> None:
    told = history(write(1, 0, 1, 2), write(2, 1, 3, 4), write(3, 1, 5, 6), log={0: (1, 0), 1: (3, 1)})
    assert kinds(told) == []


def test_what_is_lost_while_one_leader_led_is_reported() -> None:
    told = history(write(1, 0, 1, 2), write(2, 5, 3, 4), write(3, 1, 5, 6), log={0: (1, 7), 1: (3, 7)})
    assert kinds(told) == ["lost without a failover"]


def test_a_leader_that_was_deposed_must_not_acknowledge() -> None:
    """SIGSTOP at 2, epoch 1 leads from 3, SIGCONT at 5: the old leader answers as if nothing had happened."""
    told = history(
        write(1, 0, 1, 2),
        write(2, 1, 3, 4),
        write(9, 1, 5, 6),
        write(3, 2, 7, 8),
        log={0: (1, 0), 1: (2, 1), 2: (3, 1)},
    )
    assert kinds(told) == ["lost without a failover", "acknowledged out of time"]


def test_a_deposed_leader_is_found_when_the_next_one_fails_as_well() -> None:
    """Then its record may have been lost with that one, but not have had an offset that was taken."""
    told = history(
        write(1, 0, 1, 2),
        write(2, 1, 3, 4),
        write(9, 1, 5, 6),
        write(3, 2, 7, 8),
        log={0: (1, 0), 1: (2, 1), 2: (3, 2)},
    )
    assert kinds(told) == ["acknowledged out of time"]


def test_writes_that_overlap_may_come_in_any_order() -> None:
    told = history(write(1, 1, 1, 3), write(2, 0, 2, 4), log={0: (2, 0), 1: (1, 0)})
    assert kinds(told) == []
    touching = history(write(1, 1, 1, 2), write(2, 0, 2, 4), log={0: (2, 0), 1: (1, 0)})
    assert kinds(touching) == [], "a clock that has not moved tells nothing"


def test_an_acknowledgement_must_come_after_the_one_before_it_though_both_survive() -> None:
    told = history(write(1, 1, 1, 2), write(2, 0, 3, 4), log={0: (2, 0), 1: (1, 0)})
    assert "acknowledged out of time" in kinds(told)


def test_a_write_without_an_answer_shows_who_leads_and_promises_nothing() -> None:
    told = history(
        write(1, 0, 1, 2),
        write(2, 9, 3, 4),
        write(3, None, 5, 0, outcome=UNKNOWN),
        write(4, None, 6, 0, outcome=UNKNOWN),
        log={0: (1, 7), 1: (3, 7)},
    )
    assert kinds(told) == ["lost without a failover"]


def test_at_the_edges_of_a_history_nothing_is_known_of_who_led() -> None:
    assert kinds(history(write(1, 0, 1, 2), write(2, 0, 3, 4), log={0: (2, 1)})) == []
    assert kinds(history(write(1, 0, 1, 2), write(2, 1, 3, 4), log={0: (1, 1)})) == []


def test_what_all_replicas_had_outlives_any_leader() -> None:
    told = history(write(1, 0, 1, 2, acks=-1), log={})
    assert kinds(told) == ["lost"]


@pytest.mark.parametrize(
    ("error_code", "outcome", "offset"),
    [(0, ACKNOWLEDGED, 5), (NotLeaderOrFollower.code, Outcome.REFUSED, None)],
)
def test_an_answer_settles_a_write(error_code: int, outcome: Outcome, offset: int | None) -> None:
    asked = write(1, None, 1, 0, outcome=UNKNOWN)
    settle(asked, PartitionProduceResponse(error_code=error_code, base_offset=5), 2.0)
    assert (asked.outcome, asked.offset, asked.answered_s) == (outcome, offset, 2.0)
