"""Every case in every version against both brokers."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import ApiKey
from tests.differential import cases
from tests.differential.case import Triple, all_triples
from tests.differential.compare import Difference, differences, read_accepted, sorted_out
from tests.differential.conftest import Sides
from tests.differential.driver import run

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("differential")]

cases.declare_all()
TRIPLES = all_triples()
ACCEPTED = read_accepted()


@pytest.mark.parametrize("triple", TRIPLES, ids=str)
def test_both_brokers_give_the_same_answer(triple: Triple, sides: Sides) -> None:
    theirs = run(triple, sides.kafka)
    ours = run(triple, sides.ours)
    found: list[Difference] = []
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        # A heartbeat repeats the epoch that the broker gave, and the first epochs differ (accepted.toml).
        if triple.case.api is not ApiKey.CONSUMER_GROUP_HEARTBEAT:
            assert mine.request == other.request, f"request {number} is not the same on both sides"
        found += differences(mine.answer, other.answer, f"#{number}")
    if len(ours) != len(theirs):
        found.append(Difference("steps", len(ours), len(theirs)))
    kept, used = sorted_out(triple, found, ACCEPTED)
    sides.report.add(triple, kept, used)
    assert not kept, "\n" + "\n".join(f"  {each}" for each in kept)


def test_every_accepted_difference_still_occurs(sides: Sides) -> None:
    if sides.report.count < len(TRIPLES):
        pytest.skip("only a whole run can tell")
    stale = [each.label for each in ACCEPTED if not sides.report.needed[each.label]]
    assert not stale, "accepted.toml lists what no longer differs:\n" + "\n".join(
        f"  {each}" for each in stale
    )
