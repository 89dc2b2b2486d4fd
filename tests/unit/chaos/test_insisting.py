"""A refused question is asked again, and a broker that only refuses is a fault."""

from __future__ import annotations

import pytest
from tests.chaos.insisting import insist

from barnabas.core.errors import NotLeaderOrFollower


def test_an_answer_that_comes_late_is_taken() -> None:
    answers = iter([NotLeaderOrFollower(), NotLeaderOrFollower()])

    def look() -> int:
        for error in answers:
            raise error
        return 7

    assert insist(look) == 7


def test_no_answer_for_long_is_told() -> None:
    def look() -> int:
        raise NotLeaderOrFollower("elsewhere")

    with pytest.raises(NotLeaderOrFollower):
        insist(look, timeout_s=0.0)
