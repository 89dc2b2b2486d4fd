"""Creation, renewal and expiry of delegation tokens, and the principals that may do each."""

from __future__ import annotations

import pytest

from barnabas.core.errors import DelegationTokenExpired, DelegationTokenOwnerMismatch
from barnabas.security.credentials.delegation_token import (
    TokenTimes,
    created,
    renewed,
    shortened,
    token_secret,
)
from barnabas.security.identity.principal import KafkaPrincipal

ALICE, BOB, CAROL = (KafkaPrincipal.user(name) for name in ("alice", "bob", "carol"))
TIMES = TokenTimes(lifetime_ms_max=1_000, renewal_ms=100)
TOKEN = created("id", ALICE, ALICE, (BOB,), 0, 5_000, TIMES)


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expiry_ms"),
    [(0, 6_000, 5_100), (-1, 6_000, 5_100), (500, 5_500, 5_100), (50, 5_050, 5_050), (9_999, 6_000, 5_100)],
)
def test_a_token_lives_within_its_bounds(lifetime_ms: int, max_ms: int, expiry_ms: int) -> None:
    token = created("id", ALICE, ALICE, (), lifetime_ms, 5_000, TIMES)
    assert (token.issue_ms, token.max_ms, token.expiry_ms) == (5_000, max_ms, expiry_ms)


@pytest.mark.parametrize("who", [ALICE, BOB])
@pytest.mark.parametrize(("period_ms", "expiry_ms"), [(-1, 5_150), (10, 5_060), (5_000, 6_000)])
def test_owner_and_renewers_renew_it(who: KafkaPrincipal, period_ms: int, expiry_ms: int) -> None:
    assert renewed(TOKEN, who, period_ms, 5_050, TIMES).expiry_ms == expiry_ms


def test_it_is_ended_now_or_soon() -> None:
    assert shortened(TOKEN, BOB, -1, 5_050) is None
    soon = shortened(TOKEN, BOB, 7, 5_050)
    assert soon is not None
    assert soon.expiry_ms == 5_057


def test_no_other_user_touches_it() -> None:
    with pytest.raises(DelegationTokenOwnerMismatch):
        renewed(TOKEN, CAROL, -1, 5_050, TIMES)
    with pytest.raises(DelegationTokenOwnerMismatch):
        shortened(TOKEN, CAROL, -1, 5_050)


def test_what_is_over_stays_over() -> None:
    with pytest.raises(DelegationTokenExpired):
        renewed(TOKEN, ALICE, -1, 5_101, TIMES)


def test_a_secret_is_of_its_token_and_of_the_brokers() -> None:
    assert len({token_secret("a", "x"), token_secret("b", "x"), token_secret("a", "y")}) == 3
    assert len(token_secret("a", "x")) == 64
