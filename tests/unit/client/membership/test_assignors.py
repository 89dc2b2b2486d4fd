"""Assignors: Kafka's outcomes, balance and stickiness, and the moves of cooperative members."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.membership.assignors import ASSIGNORS, Assignment, MemberSubscription
from barnabas.client.membership.classic_messages import decode_sticky, encode_sticky
from barnabas.client.membership.sticky_assignor import _even_out
from barnabas.core.ids import TopicPartition


def reads(*topics: str, instance: str | None = None, **owned: object) -> MemberSubscription:
    return MemberSubscription(tuple(topics), instance)


def with_owned(topic: str, *numbers: int, generation: int = 1) -> MemberSubscription:
    return MemberSubscription(
        (topic,), None, tuple(TopicPartition(topic, number) for number in numbers), generation
    )


def numbers(shares: Assignment) -> dict[str, list[str]]:
    return {member: [str(each) for each in share] for member, share in shares.items()}


def test_range_gives_the_remainder_to_the_first_members_of_each_topic() -> None:
    shares = ASSIGNORS["range"]({"a": 3, "b": 3}, {"m1": reads("a", "b"), "m2": reads("a", "b")})
    assert numbers(shares) == {"m1": ["a-0", "a-1", "b-0", "b-1"], "m2": ["a-2", "b-2"]}


def test_static_members_come_first_in_range() -> None:
    members = {"a-dynamic": reads("t"), "z": reads("t", instance="i2"), "y": reads("t", instance="i1")}
    shares = ASSIGNORS["range"]({"t": 4}, members)
    assert numbers(shares) == {"y": ["t-0", "t-1"], "z": ["t-2"], "a-dynamic": ["t-3"]}


def test_round_robin_deals_to_members_that_read_the_topic() -> None:
    members = {"m1": reads("a"), "m2": reads("a", "b"), "m3": reads("a", "b", "c")}
    shares = ASSIGNORS["roundrobin"]({"a": 1, "b": 2, "c": 3}, members)
    # The example of Kafka's RoundRobinAssignor.
    assert numbers(shares) == {"m1": ["a-0"], "m2": ["b-0"], "m3": ["b-1", "c-0", "c-1", "c-2"]}


def test_sticky_keeps_and_evens_out() -> None:
    members = {"m1": with_owned("t", 0, 1, 2, 3), "m2": reads("t")}
    shares = ASSIGNORS["sticky"]({"t": 4}, members)
    assert numbers(shares) == {"m1": ["t-0", "t-1"], "m2": ["t-2", "t-3"]}


def test_sticky_believes_the_later_generation() -> None:
    members = {"old": with_owned("t", 0, generation=1), "new": with_owned("t", 0, generation=2)}
    shares = ASSIGNORS["sticky"]({"t": 2}, members)
    assert numbers(shares)["new"] == ["t-0"]


def test_cooperative_withholds_what_another_member_still_owns() -> None:
    members = {"m1": with_owned("t", 0, 1, 2, 3), "m2": reads("t")}
    first = ASSIGNORS["cooperative-sticky"]({"t": 4}, members)
    assert numbers(first) == {"m1": ["t-0", "t-1"], "m2": []}
    members = {"m1": with_owned("t", 0, 1), "m2": reads("t")}
    assert numbers(ASSIGNORS["cooperative-sticky"]({"t": 4}, members))["m2"] == ["t-2", "t-3"]


def test_sticky_user_data_survives() -> None:
    owned = (TopicPartition("a", 1), TopicPartition("a", 4), TopicPartition("b", 0))
    assert decode_sticky(encode_sticky(owned, 9)) == (owned, 9)
    assert decode_sticky(b"\0\0\0\1\0") == ((), -1)


topics = st.dictionaries(st.sampled_from("abc"), st.integers(1, 7), min_size=1)
groups = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4"]),
    st.sets(st.sampled_from("abcd"), min_size=1),
    min_size=1,
)


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(counts=topics, wanted=groups)
def test_every_partition_has_one_owner_that_reads_it(
    name: str, counts: dict[str, int], wanted: dict[str, set[str]]
) -> None:
    members = {member: reads(*sorted(each)) for member, each in wanted.items()}
    shares = ASSIGNORS[name](counts, members)
    given_out = sorted(chain.from_iterable(shares.values()))
    read = {topic for each in wanted.values() for topic in each}
    expected = sorted(
        TopicPartition(topic, number)
        for topic, count in counts.items()
        if topic in read
        for number in range(count)
    )
    assert given_out == expected
    assert all(each.topic in wanted[member] for member, share in shares.items() for each in share)


@given(count=st.integers(1, 30), before=st.integers(1, 5), after=st.integers(1, 5))
def test_sticky_moves_no_more_than_balance_needs(count: int, before: int, after: int) -> None:
    first = ASSIGNORS["sticky"]({"t": count}, {f"m{each}": reads("t") for each in range(before)})
    members = {
        f"m{each}": with_owned("t", *(at.partition for at in first.get(f"m{each}", ())))
        for each in range(after)
    }
    second = ASSIGNORS["sticky"]({"t": count}, members)
    sizes = sorted(map(len, second.values()))
    assert sizes[-1] - sizes[0] <= 1
    kept = sum(len(set(first.get(member, ())) & set(share)) for member, share in second.items())
    possible = sum(min(len(first.get(member, ())), len(share)) for member, share in second.items())
    assert kept == possible


class CountedShare(set[TopicPartition]):
    """Share that counts the partitions that were looked at."""

    looks = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        for each in super().__iter__():
            CountedShare.looks += 1
            yield each


def test_sticky_looks_at_each_partition_once_whatever_moves() -> None:
    count = 1_000
    CountedShare.looks = 0
    shares: dict[str, set[TopicPartition]] = {
        "m1": CountedShare(TopicPartition("t", number) for number in range(count)),
        "m2": CountedShare(),
    }
    _even_out(shares, {"t": ["m1", "m2"]}, {"m1": 0, "m2": 1})
    assert len(shares["m1"]) == len(shares["m2"]) == count // 2
    assert CountedShare.looks == count


def test_cooperative_ignores_a_claim_of_an_older_generation() -> None:
    """The owner of the newer generation keeps its partition, also for the round of the stale claim."""
    for stale_first in (True, False):
        rows = [
            ("stale", with_owned("t", 0, generation=1)),
            ("owner", with_owned("t", 0, 1, generation=3)),
        ]
        members = dict(rows if stale_first else reversed(rows))
        shares = ASSIGNORS["cooperative-sticky"]({"t": 2}, members)
        assert numbers(shares) == {"owner": ["t-0"], "stale": []}


def test_cooperative_withholds_what_two_members_claim_in_one_generation() -> None:
    members = {"m1": with_owned("t", 0, 1), "m2": with_owned("t", 1, 2)}
    shares = ASSIGNORS["cooperative-sticky"]({"t": 3}, members)
    assert numbers(shares) == {"m1": ["t-0"], "m2": ["t-2"]}
