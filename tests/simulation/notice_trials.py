"""Trials of changes that brokers learn from each other: settings, quotas, access rules, delegation tokens.

Like `trials`, each comes last, when all is mended, and may break things by itself.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from barnabas.client.admin.delegation_tokens import Tokens
from barnabas.client.aio.channel import Channel
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import raise_for
from barnabas.client.security.settings import Secured
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.protocol.config_numbers import ConfigOperation, ResourceType
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.security.acl import vocabulary
from barnabas.security.sasl.client import PLAIN, Login, plain
from tests.chaos.history import History
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.client_trials import channel_of
from tests.simulation.clients import REQUEST_TIMEOUT_MS, World
from tests.simulation.machine import Machine
from tests.simulation.settings import TOKEN_PASSWORD, TOKEN_PORT, TOKEN_USER
from tests.simulation.store import HOST as STORE
from tests.simulation.store import Store
from tests.simulation.trials import NOT_IN_SYNC_S, SERVED_WITHIN_S

AHEAD_MS = 3_600_000
SLOW_S = 2.5
"""Shorter than a session of the machines."""
AWAY_S = 8.0
"""Longer than a session."""


class Notices(Part):
    """Settings, quotas and access rules change while a broker is slow, and another one's clock is an hour
    ahead; while a broker has no session, and the notifications expire; and at two brokers at once."""

    TOPIC = "notices"
    ROUNDS = 8

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._topic: dict[str, str] = {}
        self._brokers: dict[str, str] = {}
        self._quotas: dict[str, float] = {}
        self._rules: set[str] = set()
        self._number = 0
        self._asked: Channel
        """To the broker that changes everything: no client waits for another one meanwhile."""
        self._complaints: list[str] = []

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1)}

    async def look(self, stage: Stage) -> None:
        assert isinstance(stage.store, Store)
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        asked, ahead, late = self.chance.sample(stage.machines, 3)
        self._asked = await channel_of(cluster, asked.number)
        for _ in range(self.ROUNDS):
            await self._together(cluster, ahead, late)
        await self._compare(stage, cluster, "two brokers changed them")
        late.pause()
        ahead.clock.skew_ms += AHEAD_MS
        await self._change_all()
        await asyncio.sleep(SLOW_S)
        late.resume()
        await self._compare(stage, cluster, f"{late} stood still, and the clock of {ahead} was ahead")
        ahead.clock.skew_ms -= AHEAD_MS
        await self._while_away(stage, late)
        await self._compare(stage, cluster, f"{late} had no session")

    async def _together(self, cluster: ClusterClient, one: Machine, other: Machine) -> None:
        """Each is asked for another key, before it has heard of the other's change."""
        channels = [await channel_of(cluster, each.number) for each in (one, other)]
        for keys, kind, name, known in (
            (("retention.ms", "segment.ms"), ResourceType.TOPIC, self.TOPIC, self._topic),
            (("log.retention.bytes", "log.roll.ms"), ResourceType.BROKER, "", self._brokers),
        ):
            values = {key: self._next() for key in keys}
            await asyncio.gather(
                *(
                    _alter(channel, kind, name, key, value)
                    for channel, (key, value) in zip(channels, values.items(), strict=True)
                )
            )
            known.update(values)

    async def _while_away(self, stage: Stage, away: Machine) -> None:
        assert isinstance(stage.store, Store)
        for way in ((away.host, STORE), (STORE, away.host)):
            stage.network.cut(*way)
        await asyncio.sleep(AWAY_S)
        await self._change_all()
        await asyncio.sleep(AWAY_S)
        stage.store.jump(AHEAD_MS)
        await self._change_all()  # the earlier notifications are old by now, and go
        await asyncio.sleep(1.0)
        for way in ((away.host, STORE), (STORE, away.host)):
            stage.network.heal(*way)
        await stage.in_sync()

    async def _change_all(self) -> None:
        channel, name = self._asked, f"name-{self._number}"
        self._topic["retention.ms"] = value = self._next()
        await _alter(channel, ResourceType.TOPIC, self.TOPIC, "retention.ms", value)
        self._brokers["log.roll.ms"] = value = self._next()
        await _alter(channel, ResourceType.BROKER, "", "log.roll.ms", value)
        entity = EntityData(entity_type="client-id", entity_name=name)
        entry = EntryData(entity=[entity], ops=[OpData(key="producer_byte_rate", value=float(value))])
        quotas = await channel.send(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
        raise_for(quotas.entries[0].error_code, quotas.entries[0].error_message, name)
        self._quotas[name] = float(value)
        rule = AclCreation(
            resource_type=vocabulary.ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=vocabulary.PatternType.LITERAL,
            principal="User:a",
            host="*",
            operation=vocabulary.Operation.READ,
            permission_type=vocabulary.Permission.ALLOW,
        )
        rules = await channel.send(CreateAclsRequest(creations=[rule]), CreateAclsResponse)
        raise_for(rules.results[0].error_code, rules.results[0].error_message, name)
        self._rules.add(name)

    def _next(self) -> str:
        self._number += 1
        return str(500_000_000 + self._number)

    async def _compare(self, stage: Stage, cluster: ClusterClient, after: str) -> None:
        for machine in stage.machines:
            if self._complaints:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(SERVED_WITHIN_S / 2):
                    while await self._differences(cluster, machine.number):  # noqa: ASYNC110
                        await asyncio.sleep(1.0)
            self._complaints += [
                f"{each}, on {machine} after {after}"
                for each in await self._differences(cluster, machine.number)
            ]

    async def _differences(self, cluster: ClusterClient, broker: int) -> list[str]:
        channel = await channel_of(cluster, broker)
        kinds = ((ResourceType.TOPIC, self.TOPIC, self._topic), (ResourceType.BROKER, "", self._brokers))
        found = []
        for kind, name, wanted in kinds:
            known = await _settings(channel, kind, name)
            found += [
                f"lost setting: {key} is {known.get(key)} instead of {value}"
                for key, value in wanted.items()
                if known.get(key) != value
            ]
        answer = await channel.send(DescribeClientQuotasRequest(components=[]), DescribeClientQuotasResponse)
        quotas = {entry.entity[0].entity_name: entry.values[0].value for entry in answer.entries or ()}
        found += [f"lost quota: {name}" for name, value in self._quotas.items() if quotas.get(name) != value]
        rules = await channel.send(_every_rule(), DescribeAclsResponse)
        known_rules = {each.resource_name for each in rules.resources}
        return found + [f"lost rule: {name}" for name in sorted(self._rules - known_rules)]

    def complaints(self) -> list[str]:
        return self._complaints[:5]


class TokenHolders(Part):
    """Delegation tokens are made, renewed and expired through one broker. Every broker knows soon, and after
    a restart, which there are and until when."""

    TOPIC = "tokens"
    CHANGES = 12
    PERIOD_MS = 3_600_000

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._known: dict[str, int] = {}
        """Expiry by token id."""
        self._complaints: list[str] = []

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = self._login(stage, world)
        await self._change(cluster)
        await self._compare(stage, cluster, "they were acknowledged")
        away = self.chance.choice(stage.machines)
        if stage.brokers > 1:
            away.kill()
            await asyncio.sleep(NOT_IN_SYNC_S)
            await self._change(cluster)
        else:
            away.kill()
        away.start()
        await stage.in_sync()
        await self._compare(stage, self._login(stage, world), f"{away} was away")

    def _login(self, stage: Stage, world: World) -> ClusterClient:
        login = Login(PLAIN, lambda _: plain(TOKEN_USER, TOKEN_PASSWORD))
        return ClusterClient(
            [Endpoint(machine.host, TOKEN_PORT) for machine in stage.machines],
            clock=world.clock,
            randomness=world.chance,
            client_id=self.TOPIC,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            security=Secured(None, login),
        )

    async def _change(self, cluster: ClusterClient) -> None:
        tokens = Tokens(cluster)
        for _ in range(self.CHANGES):
            kind = self.chance.random()
            if not self._known or kind < 0.5:
                made = await tokens.create(None, (), -1)
                self._known[made.token_id] = made.expires_ms
                continue
            token_id = self.chance.choice(sorted(self._known))
            if kind < 0.75:
                self._known[token_id] = await tokens.renew(token_id, self.PERIOD_MS)
            else:
                await tokens.expire(token_id)
                del self._known[token_id]

    async def _compare(self, stage: Stage, cluster: ClusterClient, after: str) -> None:
        for machine in stage.machines:
            if self._complaints:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(SERVED_WITHIN_S / 2):
                    while await self._found(cluster, machine.number) != self._known:  # noqa: ASYNC110
                        await asyncio.sleep(1.0)
            found = await self._found(cluster, machine.number)
            wrong = {each for each in found.keys() | self._known if found.get(each) != self._known.get(each)}
            if wrong:
                self._complaints.append(f"lost tokens: {len(wrong)} differ on {machine} after {after}")

    async def _found(self, cluster: ClusterClient, broker: int) -> dict[str, int]:
        channel = await channel_of(cluster, broker)
        answer = await channel.send(
            DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse
        )
        raise_for(answer.error_code, None, self.TOPIC)
        return {each.token_id: each.expiry_timestamp for each in answer.tokens}

    def complaints(self) -> list[str]:
        return self._complaints[:5]


async def _alter(channel: Channel, kind: ResourceType, name: str, key: str, value: str) -> None:
    change = AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await channel.send(request, IncrementalAlterConfigsResponse)
    raise_for(answer.responses[0].error_code, answer.responses[0].error_message, name)


async def _settings(channel: Channel, kind: ResourceType, name: str) -> dict[str, str | None]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = await channel.send(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse)
    return {row.name: row.value for row in answer.results[0].configs}


def _every_rule() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=vocabulary.ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=vocabulary.PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=vocabulary.Operation.ANY,
        permission_type=vocabulary.Permission.ANY,
    )
