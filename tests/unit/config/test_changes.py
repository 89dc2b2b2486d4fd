"""Limits of a request that changes the settings of a resource."""

from __future__ import annotations

import pytest

from barnabas.config.dynamic.changes import KEYS_MAX, NAMED_MAX, parse_changes, parse_replacement
from barnabas.core.errors import InvalidRequest


def test_more_keys_than_any_resource_has_are_refused() -> None:
    names = [f"key.{each}" for each in range(KEYS_MAX + 1)]
    assert len(parse_replacement([(name, "") for name in names[:-1]])) == KEYS_MAX
    with pytest.raises(InvalidRequest, match="config keys for one resource"):
        parse_replacement([(name, "") for name in names])
    with pytest.raises(InvalidRequest, match="config keys for one resource"):
        parse_changes([(name, 0, "") for name in names])


def test_a_complaint_names_some_of_the_duplicates() -> None:
    names = [f"key.{each}" for each in range(KEYS_MAX // 2)] * 2
    with pytest.raises(InvalidRequest, match="duplicate config keys") as caught:
        parse_replacement([(name, "") for name in names])
    assert caught.value.message.count(",") == NAMED_MAX - 1
