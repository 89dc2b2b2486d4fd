"""ACLs in either store: no race loses one, and every broker is notified of a change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.contract.test_coordination import Store, store
from tests.support.waiting import PATIENCE_S

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.stores.acl_replica import AclReplica
from barnabas.cluster.stores.acl_store import change_rules, list_patterns, make_acl_paths, read_rules
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.core.clock import SystemClock
from barnabas.node.membership.store_watcher import following
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.bindings import AccessRule, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType

__all__ = ["store"]

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
READERS = ResourcePattern(ResourceType.GROUP, "read", PatternType.PREFIXED)


def rule(number: int) -> AccessRule:
    return AccessRule(f"User:u{number}", "*", Operation.READ, Permission.ALLOW)


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - a replica tells nobody
            await asyncio.sleep(0.01)


@asynccontextmanager
async def replica(znodes: Coordination) -> AsyncIterator[AclReplica]:
    clock = SystemClock()
    opened = AclReplica(znodes, AclAuthorizer(Audit(clock), (), is_open_without_rules=False), clock)
    async with following(znodes, opened, "access rules"):
        yield opened


async def test_no_rule_is_lost_when_many_change_one_resource(store: Store) -> None:
    """CVE-2024-27309: what others wrote meanwhile stays."""
    sessions = [await store.connect() for _ in range(3)]
    await make_acl_paths(sessions[0])

    async def write(number: int) -> None:
        await change_rules(sessions[number % 3], ORDERS, frozenset({rule(number)}).union)

    await asyncio.gather(*map(write, range(12)))
    assert (await read_rules(sessions[0], [ORDERS]))[ORDERS] == frozenset(map(rule, range(12)))

    async def remove(number: int) -> None:
        await change_rules(sessions[number % 3], ORDERS, lambda rules: rules - {rule(number)})

    await asyncio.gather(*map(remove, range(0, 12, 2)), write(20))
    left = (await read_rules(sessions[1], [ORDERS]))[ORDERS]
    assert left == frozenset(map(rule, (*range(1, 12, 2), 20)))
    await change_rules(sessions[2], ORDERS, lambda _: frozenset())
    assert await list_patterns(sessions[0]) == []


async def test_every_broker_hears_of_a_change(store: Store) -> None:
    one, other = await store.connect(), await store.connect()
    async with replica(one) as here, replica(other) as there:
        for pattern in (ORDERS, READERS):
            await here.change(pattern, frozenset({rule(1)}).union)
            assert here.authorizer.of(pattern) == {rule(1)}
            await eventually(lambda: there.authorizer.of(pattern) == {rule(1)})  # noqa: B023 - called here
        await there.change(ORDERS, lambda _: frozenset())
        await eventually(lambda: here.authorizer.patterns() == [READERS])


async def test_rules_that_are_there_are_known_from_the_start(store: Store) -> None:
    znodes = await store.connect()
    await make_acl_paths(znodes)
    await change_rules(znodes, ORDERS, lambda _: frozenset({rule(1), rule(2)}))
    async with replica(await store.connect()) as here:
        assert here.authorizer.of(ORDERS) == {rule(1), rule(2)}


async def test_a_rule_that_cannot_be_understood_stops_the_start(store: Store) -> None:
    znodes = await store.connect()
    await make_acl_paths(znodes)
    await znodes.create("/kafka-acl/Topic/orders", b'{"version": 1, "acls": [{"principal": 1}]}')
    clock = SystemClock()
    with pytest.raises(MalformedZnode):
        await AclReplica(znodes, AclAuthorizer(Audit(clock), (), is_open_without_rules=False), clock).open(
            lambda: None
        )


async def test_a_change_without_a_note_is_found_in_a_new_session(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.node.membership.store_watcher.LOOK_AGAIN_S", 0.05)
    writer = await store.connect()
    async with replica(await store.connect()) as here:
        await writer.create(
            "/kafka-acl/Topic/orders",
            b'{"version":1,"acls":[{"principal":"User:u1","permissionType":"Allow","operation":"Read","host":"*"}]}',
        )
        await eventually(lambda: here.authorizer.of(ORDERS) == {rule(1)})
