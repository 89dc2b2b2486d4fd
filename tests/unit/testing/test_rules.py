"""Counts of fault rules: which requests they cover, and which of them they hit."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.testing.faults.rules import FaultRule, Faults


def hits(rule: FaultRule, matches: int) -> list[int]:
    """Numbers of the matches that are hit."""
    return [number for number in range(matches) if rule.take()]


def test_a_rule_covers_an_api_a_version_and_a_client() -> None:
    rule = Faults().add(api="Produce", version=9, client_id="orders", error="INVALID_RECORD")
    assert rule.covers(ApiKey.PRODUCE, 9, "orders")
    assert not rule.covers(ApiKey.PRODUCE, 10, "orders")
    assert not rule.covers(ApiKey.PRODUCE, 9, "others")
    assert not rule.covers(ApiKey.PRODUCE, 9, None)
    assert not rule.covers(ApiKey.FETCH, 9, "orders")
    assert Faults().add(error="INVALID_RECORD").covers(ApiKey.FETCH, 4, None)


def test_the_same_seed_gives_the_same_hits() -> None:
    def rule(seed: int) -> FaultRule:
        return Faults().add(error="INVALID_RECORD", probability=0.3, seed=seed)

    found = hits(rule(7), 1_000)
    assert found == hits(rule(7), 1_000)
    assert found != hits(rule(8), 1_000)
    assert 200 < len(found) < 400


def test_so_many_matches_pass_and_so_many_are_hit() -> None:
    rule = Faults().add(error="INVALID_RECORD", after=2, times=3)
    assert hits(rule, 10) == [2, 3, 4]
    assert (rule.matches, rule.hits, rule.is_spent) == (10, 3, True)
    probable = Faults().add(error="INVALID_RECORD", after=5, times=2, probability=0.5, seed=1)
    found = hits(probable, 100)
    assert len(found) == 2
    assert found[0] >= 5


def test_rules_apply_in_their_order_and_not_while_the_broker_stops() -> None:
    of_cluster = Faults(in_cluster=True)
    faults = Faults(of_cluster)
    every = of_cluster.add(error="INVALID_RECORD")
    one, two = faults.add(error="INVALID_RECORD"), faults.add(error="INVALID_RECORD")
    assert faults.applied() == (one, two, every)
    assert (list(faults), list(of_cluster)) == ([one, two], [every])
    faults.are_suspended = True
    assert faults.applied() == ()


@pytest.mark.parametrize("removes_all", [False, True])
def test_a_wait_ends_with_its_rule(removes_all: bool) -> None:
    faults = Faults()
    rule = faults.add(error="INVALID_RECORD")
    rule.take()
    removal = threading.Timer(0.05, faults.clear if removes_all else rule.remove)
    removal.start()
    with pytest.raises(RuntimeError, match="was removed after 1 hits; the test waits for 2"):
        rule.wait_for_hits(2, 60)
    removal.join()
    assert not rule.take(), "a request that came before the removal is hit after it"
    rule.wait_for_hits(1)


async def test_an_awaited_rule_is_removed() -> None:
    rule = Faults().add(error="INVALID_RECORD")
    waiting = asyncio.ensure_future(rule.hit(1, 60))
    await asyncio.sleep(0)
    rule.remove()
    with pytest.raises(RuntimeError, match="was removed after 0 hits"):
        await waiting
