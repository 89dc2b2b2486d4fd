"""Keys of `barnabas top`."""

from __future__ import annotations

import pytest

from barnabas.cli.top.keys import GROUP_SORTS, HELP, TOPIC_SORTS, Choice
from barnabas.cli.top.screen import rows_for


@pytest.mark.parametrize(("key", "sort"), TOPIC_SORTS.items())
def test_a_topic_key_sorts_and_reverses(key: str, sort: str) -> None:
    once = Choice(topics_by="name" if sort != "name" else "size").after(key)
    assert (once.topics_by, once.topics_descending) == (sort, sort != "name")
    assert once.after(key).topics_descending == (not once.topics_descending)


@pytest.mark.parametrize(("key", "sort"), GROUP_SORTS.items())
def test_a_group_key_sorts_and_reverses(key: str, sort: str) -> None:
    once = Choice(groups_by="members" if sort != "members" else "lag").after(key)
    assert once.groups_by == sort
    assert once.after(key).groups_descending == (not once.groups_descending)


def test_other_keys() -> None:
    assert Choice().after("x") == Choice()
    assert Choice().after(" ").is_paused
    assert Choice().after(" ").after(" ") == Choice()
    assert all(Choice().after(key).is_over for key in ("q", "\x03"))
    assert not TOPIC_SORTS.keys() & GROUP_SORTS.keys()
    assert all(f"[b]{key}[/]" in HELP for key in (*TOPIC_SORTS, *GROUP_SORTS))


@pytest.mark.parametrize("height", [1, 24, 60])
def test_rows_fit_into_the_terminal(height: int) -> None:
    topics, groups = rows_for(height, brokers=1)
    assert topics >= 3
    assert groups >= 3
    assert topics + groups <= max(height - 15, 6)
