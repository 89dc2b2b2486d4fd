"""A principal is written `User:alice` wherever people see it."""

from __future__ import annotations

import pytest

from barnabas.core.errors import InvalidRequest
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("User:alice", "User", "alice"),
        ("Group:writers", "Group", "writers"),
        ("User:CN=alice,O=a:b", "User", "CN=alice,O=a:b"),
        ("User:*", "User", "*"),
    ],
)
def test_a_principal_is_read_and_written_alike(text: str, kind: str, name: str) -> None:
    principal = KafkaPrincipal.parse(text)
    assert principal == KafkaPrincipal(kind, name)
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_what_is_no_principal_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a principal"):
        KafkaPrincipal.parse(text)


def test_the_anonymous_user_has_kafkas_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
