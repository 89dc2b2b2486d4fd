"""Range assignment of a group's partitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.group_member import in_ranges


@pytest.mark.parametrize(
    ("partitions", "members", "shares"),
    [
        (4, ["a", "b"], {"a": [0, 1], "b": [2, 3]}),
        (5, ["a", "b"], {"a": [0, 1, 2], "b": [3, 4]}),
        (1, ["a", "b"], {"a": [0], "b": []}),
        (0, ["a"], {"a": []}),
        (3, ["b", "a"], {"b": [0, 1], "a": [2]}),
    ],
)
def test_the_first_members_get_the_remainder(
    partitions: int, members: list[str], shares: dict[str, list[int]]
) -> None:
    assert in_ranges(partitions, members) == shares


@given(st.integers(0, 200), st.integers(1, 20))
def test_every_partition_has_one_member_and_shares_are_even(partitions: int, members: int) -> None:
    shares = in_ranges(partitions, [f"m{number}" for number in range(members)])
    assert [each for share in shares.values() for each in share] == list(range(partitions))
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1
