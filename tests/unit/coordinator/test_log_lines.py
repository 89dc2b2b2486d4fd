"""Log lines that clients can cause at will are few and short."""

from __future__ import annotations

import logging

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.core.limits import LOG_LINES_PER_SECOND_MAX
from tests.unit.coordinator.support import Groups
from tests.unit.coordinator.transaction_support import Transactions

LONG = "x" * 32_000
LINE_CHARS_MAX = 1_000


def test_reasons_to_join_and_names_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    groups = Groups(initial_rebalance_delay_ms=0)
    member, _ = groups.enter(LONG, client=LONG, reason=LONG)
    groups.advance(1)
    groups.join(LONG, member, protocols=(("range", b"other"),), reason=LONG)
    groups.advance(200_000)  # its session is over
    assert {message.partition(" ")[0] for message in caplog.messages} == {"group", "member"}
    assert len(caplog.messages) >= 4
    assert max(map(len, caplog.messages)) < LINE_CHARS_MAX


def test_a_member_that_joins_again_and_again_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    groups = Groups(initial_rebalance_delay_ms=0)
    member, _ = groups.enter()
    groups.advance(1_000)
    caplog.clear()
    for metadata in range(100):
        groups.join(member=member, protocols=(("range", b"%d" % metadata),))
    assert len(caplog.messages) == 2 * LOG_LINES_PER_SECOND_MAX  # a rebalance, and its generation
    groups.advance(1_000)
    groups.join(member=member, protocols=(("range", b"last"),))
    assert caplog.messages[-1].endswith("is at generation 102 with 1 members (90 like it left out)")


def test_transactional_ids_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    transactions = Transactions()
    producer = transactions.init(LONG)
    transactions.add(producer, TopicPartition("orders", 0), transactional_id=LONG)
    transactions.ask_init(LONG)
    (message,) = caplog.messages
    assert "a new producer aborts the open transaction" in message
    assert len(message) < LINE_CHARS_MAX
