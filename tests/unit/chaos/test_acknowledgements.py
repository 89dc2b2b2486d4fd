"""The checker distinguishes a record lost with its leader from one that no leader had acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.checker import complaints_about
from tests.chaos.direct_writing import settle
from tests.chaos.history import History, Outcome, Place, Value, Write
from tests.chaos.leaderships import leaders_by_epoch, merge
from tests.support.manual_time import ManualClock

from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.znodes.layout import PartitionState, PartitionStateZnode
from barnabas.core.errors import NotLeaderOrFollower
from barnabas.core.scheduler import InlineBackground
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


def test_what_was_lost_with_its_leader_was_promised_by_no_other_broker() -> None:
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


LEADERS = {4: 1, 5: -1, 6: 2, 7: 3}
"""Broker 1 dies and broker 2 takes over; broker 2 stops before broker 3 has fetched from it."""


def double_failover(*writes: Write, leaders: dict[int, int] | None = None, **changed: object) -> History:
    """Broker 2 acknowledges number 2 at the offset of number 1, which broker 3 has from broker 1."""
    told = history(
        write(1, 237, 1, 2, broker=1),
        write(2, 237, 3, 4, **{"broker": 2} | changed),
        write(3, 238, 5, 6, broker=3),
        *writes,
        log={237: (1, 4), 238: (3, 7)},
    )
    if leaders is not None:
        told.leaders["single", 0] = leaders
    return told


def test_a_second_failover_may_bring_back_the_record_whose_offset_was_acknowledged_again() -> None:
    assert kinds(double_failover(leaders=LEADERS)) == []
    assert kinds(double_failover()) == [], "of an epoch without survivors nothing is known"


def test_only_the_leader_of_an_epoch_in_between_may_have_acknowledged_it() -> None:
    for deposed in (1, 3):
        assert "acknowledged out of time" in kinds(double_failover(leaders=LEADERS, broker=deposed)), deposed
    nobody = {4: 1, 5: -1, 6: -1, 7: 3}
    assert kinds(double_failover(leaders=nobody)) == ["lost without a failover", "acknowledged out of time"]
    assert "acknowledged out of time" in kinds(double_failover(leaders=nobody, broker=None))
    assert kinds(double_failover(leaders=LEADERS, broker=None)) == []


def test_a_leader_that_survived_in_the_next_epoch_lost_nothing_to_the_one_after() -> None:
    """Number 4 shows that epoch 6 survives: its leader had number 2 before it."""
    told = double_failover(write(4, 238, 5, 6, broker=2), leaders=LEADERS)
    told.final["single", 0] = [(237, Value("direct", 1)), (238, Value("direct", 4))]
    told.epochs[Place("single", 0, 238)] = 6
    assert "acknowledged out of time" in kinds(told)


def test_what_all_replicas_had_is_not_excused_by_two_failovers() -> None:
    told = kinds(double_failover(leaders=LEADERS, acks=-1))
    assert {"lost", "acknowledged out of time"} <= set(told)


def test_a_write_that_survives_is_not_excused_by_two_failovers() -> None:
    told = double_failover(leaders=LEADERS)
    told.writes[1].offset = 236
    told.final["single", 0].insert(0, (236, Value("direct", 2)))
    told.epochs[Place("single", 0, 236)] = 4
    assert kinds(told) == ["acknowledged out of time"]


def test_a_broker_that_never_led_lost_nothing_with_a_failover() -> None:
    told = history(
        write(1, 0, 1, 2), write(2, 1, 3, 4, broker=3), write(3, 1, 5, 6), log={0: (1, 0), 1: (3, 2)}
    )
    assert kinds(told) == []
    told.leaders["single", 0] = {0: 1, 1: -1, 2: 2}
    assert kinds(told) == ["lost without a failover"]
    told.leaders["single", 0] = {0: 3, 1: -1, 2: 2}
    assert kinds(told) == []


def test_the_leader_of_the_last_epoch_has_lost_nothing() -> None:
    told = history(write(1, 0, 1, 2), write(2, 1, 3, 4, broker=1), log={0: (1, 0)})
    told.leaders["single", 0] = {0: 1}
    assert kinds(told) == ["lost without a failover"]
    told.leaders["single", 0] = {0: 1, 1: 2}
    assert kinds(told) == []


def test_the_leaders_are_read_from_the_log_of_zookeeper(tmp_path: Path) -> None:
    logs = tmp_path / "version-2"
    logs.mkdir()
    logs.joinpath("log.1").write_bytes(b"ZKLG" + logged("single", 0, 1, 0) + logged("other", 0, 3, 9))
    logs.joinpath("log.7").write_bytes(logged("single", 0, -1, 1) + logged("single", 0, 2, 2) + bytes(64))
    found = leaders_by_epoch(tmp_path, {"single"})
    assert found == {("single", 0): {0: 1, 1: -1, 2: 2}}
    merge(found, {("single", 0): {3: 1}, ("single", 1): {0: 2}})
    assert found == {("single", 0): {0: 1, 1: -1, 2: 2, 3: 1}, ("single", 1): {0: 2}}


async def test_the_leaders_are_read_from_the_log_and_the_snapshot_of_a_shared_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = PartitionStateZnode.path("single", 0)
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as znodes:
        await znodes.create(path, state_of(1, 0), make_parents=True)
        monkeypatch.setattr("barnabas.cluster.embedded.session.COMPACT_BYTES_MIN", 1)
        await znodes.set(path, state_of(-1, 1))
        monkeypatch.undo()
        found = leaders_by_epoch(tmp_path, {"single"})
        assert found == {("single", 0): {1: -1}}
        await znodes.set(path, state_of(2, 2))
    assert leaders_by_epoch(tmp_path, {"single"}) == {("single", 0): {1: -1, 2: 2}}


def state_of(leader: int, epoch: int) -> bytes:
    return PartitionStateZnode.encode(PartitionState(leader, epoch, (1, 2, 3), controller_epoch=1))


def logged(topic: str, partition: int, leader: int, epoch: int) -> bytes:
    """SetDataTxn: path, data and version, strings with their lengths."""
    path = PartitionStateZnode.path(topic, partition).encode()
    data = state_of(leader, epoch)
    return b"".join(
        (len(path).to_bytes(4, "big"), path, len(data).to_bytes(4, "big"), data, bytes(4), b"B", bytes(8))
    )


@pytest.mark.parametrize(
    ("error_code", "outcome", "offset"),
    [(0, ACKNOWLEDGED, 5), (NotLeaderOrFollower.code, Outcome.REFUSED, None)],
)
def test_an_answer_settles_a_write(error_code: int, outcome: Outcome, offset: int | None) -> None:
    asked = write(1, None, 1, 0, outcome=UNKNOWN)
    settle(asked, PartitionProduceResponse(error_code=error_code, base_offset=5), 2.0)
    assert (asked.outcome, asked.offset, asked.answered_s) == (outcome, offset, 2.0)
