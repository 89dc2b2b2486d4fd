"""Partition of `__consumer_offsets` that coordinates a group: clients and other brokers compute the same."""

from __future__ import annotations

import pytest

from barnabas.coordinator.runtime.routing import partition_of


@pytest.mark.parametrize(
    ("group_id", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("hello", 99162322),
        ("Hello World", -862545276),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_a_group_lives_where_java_would_look_for_it(group_id: str, hash_code: int) -> None:
    expected = 0 if hash_code == -(1 << 31) else abs(hash_code)
    for count in (1, 3, 50):
        assert partition_of(group_id, count) == expected % count
