"""A broker's copy of the delegation tokens: how many there may be, and what is shown where there is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.figures import figure
from tests.support.manual_time import ManualClock

from barnabas.cluster.coordination.contract import DATA_BYTES_MAX, Coordination
from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.stores import delegation_tokens
from barnabas.cluster.stores.change_notifications import NOTIFICATION_LIFETIME_MS
from barnabas.cluster.stores.decoy_secret import get_or_create_decoy_secret
from barnabas.cluster.stores.delegation_tokens import DelegationTokens
from barnabas.cluster.znodes.delegation_tokens import DelegationTokenZnode, TokenChangeZnode
from barnabas.core.errors import DelegationTokenNotFound, InvalidRequest, PolicyViolation
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.core.scheduler import InlineBackground
from barnabas.security.credentials.delegation_token import DelegationToken, TokenTimes, created
from barnabas.security.credentials.scram_credential import ScramMechanism
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal

ALICE, BOB = KafkaPrincipal.user("alice"), KafkaPrincipal.user("bob")
TIMES = TokenTimes(lifetime_ms_max=1_000, renewal_ms=100)


@asynccontextmanager
async def store(path: Path, clock: ManualClock | None = None) -> AsyncIterator[Coordination]:
    async with open_embedded(path, clock or ManualClock(), InlineBackground()) as opened:
        yield opened


async def opened(
    znodes: Coordination, clock: ManualClock, metrics: Metrics | None = None
) -> DelegationTokens:
    tokens = DelegationTokens(znodes, clock, "secret", TIMES, InlineBackground(), metrics or Metrics())
    await tokens.open(lambda: None)
    return tokens


def token(name: str, owner: KafkaPrincipal, clock: ManualClock) -> DelegationToken:
    return created(name, owner, owner, (), 0, clock.now_ms(), TIMES)


async def test_an_owner_and_all_together_have_so_many_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_tokens, "DELEGATION_TOKENS_PER_OWNER_MAX", 2)
    monkeypatch.setattr(delegation_tokens, "DELEGATION_TOKENS_MAX", 3)
    clock = ManualClock()
    async with store(tmp_path) as znodes:
        metrics = Metrics()
        tokens = await opened(znodes, clock, metrics)
        await tokens.add(token("a", ALICE, clock))
        clock.advance(ms=50)
        await tokens.add(token("b", ALICE, clock))
        with pytest.raises(PolicyViolation):
            await tokens.add(token("c", ALICE, clock))
        await tokens.add(token("c", BOB, clock))
        with pytest.raises(PolicyViolation):
            await tokens.add(token("d", BOB, clock))
        clock.advance(ms=51)  # the first is over
        await tokens.add(token("d", ALICE, clock))
        assert [each.token_id for each in tokens] == ["b", "c", "d"]
        assert figure(metrics, "barnabas_delegation_tokens") == 3
        assert figure(metrics, "barnabas_delegation_token_owners") == 2


async def test_a_few_owners_that_take_all_they_get_leave_tokens_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation_tokens, "DELEGATION_TOKENS_PER_OWNER_MAX", 5)
    monkeypatch.setattr(delegation_tokens, "DELEGATION_TOKENS_MAX", 20)
    clock, metrics = ManualClock(), Metrics()
    async with store(tmp_path) as znodes:
        tokens = DelegationTokens(znodes, clock, "secret", TIMES, InlineBackground(), metrics)
        await tokens.open(lambda: None)
        had = []
        for user in range(6):
            owner, count = KafkaPrincipal.user(f"user {user}"), 0
            with contextlib.suppress(PolicyViolation):
                while True:
                    await tokens.add(token(f"{user}-{count}", owner, clock))
                    count += 1
            had.append(count)
        assert had[:5] == [5, 5, 5, 3, 2]
        assert "barnabas_delegation_tokens 20" in render_prometheus(metrics)


async def test_a_sweep_that_is_held_up_is_not_joined_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, store_answers, removing = ManualClock(), asyncio.Event(), list[str]()
    async with store(tmp_path) as znodes:
        tokens = await opened(znodes, clock)
        await tokens.add(token("a", ALICE, clock))
        clock.advance(ms=101)

        async def remove(expired: DelegationToken) -> None:
            removing.append(expired.token_id)
            await store_answers.wait()

        monkeypatch.setattr(tokens, "remove", remove)
        passes = [asyncio.create_task(tokens.sweep_expired()) for _ in range(5)]
        await asyncio.sleep(0)
        store_answers.set()
        await asyncio.gather(*passes)
        assert removing == ["a"]
        await tokens.sweep_expired()
        assert removing == ["a", "a"]


async def test_a_token_is_found_by_its_secret_while_there_is_one(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store(tmp_path) as znodes:
        tokens = await opened(znodes, clock)
        made = token("a", ALICE, clock)
        await tokens.add(made)
        secret = tokens.secret_of(made)
        assert tokens.find(secret) == made
        other = await opened(znodes, clock)
        assert other.find(secret) == made
        await tokens.remove(made)
        await other.refresh(lambda: None, everything=True)
        for each in (tokens, other):
            with pytest.raises(DelegationTokenNotFound):
                each.find(secret)


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_the_salt_of_an_id_says_nothing_about_its_token(
    tmp_path: Path, mechanism: ScramMechanism
) -> None:
    """Neither does it change with the token's life, nor is it another on another broker."""
    clock, salts = ManualClock(), list[bytes]()
    async with store(tmp_path) as znodes:
        tokens = await opened(znodes, clock)
        salts.append(tokens.credential(mechanism, "a").credential.salt)
        await tokens.add(token("a", ALICE, clock))
        for each in (tokens, await opened(znodes, clock)):
            assert each.credential(mechanism, "a").principal == ALICE
            salts.append(each.credential(mechanism, "a").credential.salt)
        keys = tokens.credential(mechanism, "a").credential.stored_key
        clock.advance(ms=101)
        over = tokens.credential(mechanism, "a")
        assert over.principal == ANONYMOUS, "nobody logs in with it any more"
        assert over.credential.stored_key != keys
        salts.append(over.credential.salt)
    assert len(set(salts)) == 1


async def test_the_decoy_secret_is_made_once(tmp_path: Path) -> None:
    secrets = set()
    for _ in range(2):
        async with store(tmp_path) as znodes:
            secrets |= {await get_or_create_decoy_secret(znodes) for _ in range(2)}
    (secret,) = secrets
    assert len(secret) == 32


async def test_old_notes_are_removed_and_what_is_no_note_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store(tmp_path, clock) as znodes:
        tokens = await opened(znodes, clock)
        await tokens.add(token("a", ALICE, clock))
        await znodes.create(f"{TokenChangeZnode.PARENT}/by-hand/deeper", make_parents=True)
        await tokens.refresh(lambda: None, everything=True)
        assert len(await znodes.children(TokenChangeZnode.PARENT)) == 2
        clock.advance(ms=NOTIFICATION_LIFETIME_MS + 1)
        await tokens.add(token("b", ALICE, clock))
        await tokens.refresh(lambda: None, everything=True)
        assert await znodes.children(TokenChangeZnode.PARENT) == ["by-hand", "token_change_0000000002"]
        assert [each.token_id for each in tokens] == ["a", "b"]


async def test_only_what_changed_is_understood_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, decoded = ManualClock(), list[str]()
    decode = DelegationTokenZnode.decode

    def counted(data: bytes) -> DelegationToken:
        decoded.append(decode(data).token_id)
        return decode(data)

    monkeypatch.setattr(DelegationTokenZnode, "decode", staticmethod(counted))
    async with store(tmp_path) as znodes:
        tokens = await opened(znodes, clock)
        for name in "abc":
            await tokens.add(token(name, ALICE, clock))
        other = await opened(znodes, clock)
        decoded.clear()
        longer = token("b", ALICE, clock)._replace(expiry_ms=clock.now_ms() + 500)
        await tokens.put(longer)
        await tokens.remove(token("c", ALICE, clock))
        for everything in (False, True):
            await other.refresh(lambda: None, everything=everything)
            await tokens.refresh(lambda: None, everything=everything)
            assert decoded == ["b", "b"], "once by each broker"
            for each in (tokens, other):
                assert [known.token_id for known in each] == ["a", "b"]
                assert each.find(each.secret_of(longer)) == longer


async def test_a_spoilt_entry_is_ignored(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store(tmp_path) as znodes:
        tokens = await opened(znodes, clock)
        await tokens.add(token("a", ALICE, clock))
        data, _ = await znodes.get(DelegationTokenZnode.path("a"))
        await znodes.create(DelegationTokenZnode.path("b"), b"{")
        await znodes.create(DelegationTokenZnode.path("c"), data)
        await tokens.refresh(lambda: None, everything=False)
        assert [each.token_id for each in tokens] == ["a"]


async def test_what_no_node_can_hold_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    async with store(tmp_path) as znodes:
        tokens = await opened(znodes, clock)
        large = token("a", ALICE, clock)._replace(renewers=(KafkaPrincipal.user("x" * DATA_BYTES_MAX),))
        with pytest.raises(InvalidRequest, match="coordination store"):
            await tokens.add(large)
        assert list(tokens) == []
