"""Every case in every version against both clusters; `accepted.toml` here says what may differ, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.case import Triple
from tests.differential.cluster.cases import all_triples
from tests.differential.compare import Difference, differences, read_accepted, sorted_out
from tests.differential.conftest import Sides
from tests.differential.driver import run

pytestmark = [
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.compatibility,
    pytest.mark.xdist_group("differential-cluster"),
]

TRIPLES = all_triples()
ACCEPTED = read_accepted(Path(__file__).with_name("accepted.toml"))


@pytest.mark.parametrize("triple", TRIPLES, ids=str)
def test_both_clusters_give_the_same_answer(triple: Triple, cluster_sides: Sides) -> None:
    theirs = run(triple, cluster_sides.kafka)
    ours = run(triple, cluster_sides.ours)
    found: list[Difference] = []
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        assert mine.request == other.request, f"request {number} is not the same on both sides"
        found += differences(mine.answer, other.answer, f"#{number}")
    if len(ours) != len(theirs):
        found.append(Difference("steps", len(ours), len(theirs)))
    kept, used = sorted_out(triple, found, ACCEPTED)
    cluster_sides.report.add(triple, kept, used)
    assert not kept, "\n" + "\n".join(f"  {each}" for each in kept)


def test_every_accepted_difference_of_clusters_still_occurs(cluster_sides: Sides) -> None:
    if cluster_sides.report.count < len(TRIPLES):
        pytest.skip("only a whole run can tell")
    stale = [each.label for each in ACCEPTED if not cluster_sides.report.needed[each.label]]
    assert not stale, "accepted.toml lists what no longer differs:\n" + "\n".join(stale)
