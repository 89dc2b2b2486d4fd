"""Delegation tokens on real sockets: made by one connection, shown by another."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.client.security.settings import SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    InvalidRequest,
    KafkaError,
    name_of,
)
from barnabas.core.limits import DELEGATION_TOKEN_RENEWERS_MAX, PRINCIPAL_NAME_BYTES_MAX
from barnabas.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.testing.broker import RunningBroker, run_broker
from tests.scenario.security.callers import AUTHORIZER, rule
from tests.scenario.security.callers import create as create_rules
from tests.scenario.security.sasl_broker import ADMIN, ADMIN_PASSWORD, sasl_broker

SECRET = "the brokers' own secret"
DAY_MS = 24 * 60 * 60 * 1_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {
        "delegation.token.secret.key": SECRET,
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }
    with sasl_broker(settings) as broker:
        yield broker


@asynccontextmanager
async def logged_in(
    broker: RunningBroker, user: str = ADMIN, password: str = ADMIN_PASSWORD, *, by_token: bool = False
) -> AsyncIterator[Channel]:
    module = "scram.ScramLoginModule" if by_token else "plain.PlainLoginModule"
    extra = ' tokenauth="true"' if by_token else ""
    settings = SecuritySettings.parse(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256" if by_token else "PLAIN",
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required"
            f' username="{user}" password="{password}"{extra};',
        }
    )
    channel = await Channel.connect(Endpoint.parse(broker.bootstrap), security=settings.secured())
    try:
        yield channel
    finally:
        channel.close()


async def create(
    channel: Channel, *renewers: str, kind: str = "User", owner: str | None = None
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner and "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for name in renewers],
        max_lifetime_ms=-1,
    )
    return await channel.send(request, CreateDelegationTokenResponse)


async def described(channel: Channel, *owners: str) -> set[str]:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    request = DescribeDelegationTokenRequest(owners=named or None)
    answer = await channel.send(request, DescribeDelegationTokenResponse)
    return {token.token_id for token in answer.tokens}


async def expire(channel: Channel, secret: bytes, period_ms: int) -> ExpireDelegationTokenResponse:
    request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
    return await channel.send(request, ExpireDelegationTokenResponse)


async def test_who_has_a_token_logs_in_as_its_owner(broker: RunningBroker) -> None:
    async with logged_in(broker) as admin:
        token = await create(admin)
        assert name_of(token.error_code) == "NONE"
        assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
        assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
        password = base64.b64encode(token.hmac).decode()
        async with logged_in(broker, token.token_id, password, by_token=True) as bearer:
            again = await create(bearer)
            assert again.error_code == DelegationTokenRequestNotAllowed.code
        with pytest.raises(KafkaError):
            async with logged_in(broker, token.token_id, "wrong", by_token=True):
                pass
        assert (await expire(admin, token.hmac, -1)).error_code == 0
        with pytest.raises(KafkaError):
            async with logged_in(broker, token.token_id, password, by_token=True):
                pass


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_clients_of_every_version_make_tokens_and_see_them(broker: RunningBroker, version: int) -> None:
    async with logged_in(broker) as admin:
        request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
        token = await admin.send(request, CreateDelegationTokenResponse, version_max=version)
        assert name_of(token.error_code) == "NONE"
        every = DescribeDelegationTokenRequest(owners=None)
        found = await admin.send(every, DescribeDelegationTokenResponse, version_max=version)
        assert token.token_id in {each.token_id for each in found.tokens}


async def test_tokens_are_renewed_and_ended_by_those_who_may(broker: RunningBroker) -> None:
    async with logged_in(broker) as admin, logged_in(broker, "bob", "builder") as bob:
        shared, own = await create(admin, "bob"), await create(admin)
        assert await described(bob) == {shared.token_id}
        assert await described(admin) >= {shared.token_id, own.token_id}
        renewal = RenewDelegationTokenRequest(hmac=shared.hmac, renew_period_ms=5_000)
        renewed = await bob.send(renewal, RenewDelegationTokenResponse)
        assert (renewed.error_code, renewed.expiry_timestamp_ms < shared.expiry_timestamp_ms) == (0, True)
        assert (await expire(bob, own.hmac, -1)).error_code == DelegationTokenOwnerMismatch.code
        assert (await expire(bob, shared.hmac, -1)).error_code == 0
        assert (await expire(bob, shared.hmac, -1)).error_code == DelegationTokenNotFound.code
        assert await described(bob) == set()


async def test_a_token_for_another_user_needs_the_right_to_create_it(broker: RunningBroker) -> None:
    """KIP-373."""
    async with logged_in(broker) as admin, logged_in(broker, "bob", "builder") as bob:
        refused = await create(bob, owner=ADMIN)
        assert refused.error_code == DelegationTokenAuthorizationFailed.code
        token = await create(admin, owner="bob")
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (
            0,
            "bob",
            ADMIN,
        )
        assert token.token_id in await described(bob)
        password = base64.b64encode(token.hmac).decode()
        async with logged_in(broker, token.token_id, password, by_token=True):
            pass
        assert (await expire(bob, token.hmac, -1)).error_code == 0
        await allow(admin, Operation.CREATE_TOKENS, ResourceType.USER, "User:carol")
        assert (await create(bob, owner="carol")).error_code == 0
        assert (await create(bob, owner=ADMIN)).error_code == DelegationTokenAuthorizationFailed.code


async def test_tokens_of_others_are_seen_by_who_may(broker: RunningBroker) -> None:
    async with logged_in(broker) as admin, logged_in(broker, "bob", "builder") as bob:
        first, second = await create(admin, owner="dave"), await create(admin, owner="erin")
        seen = {first.token_id, second.token_id}
        assert not await described(bob) & seen
        await allow(admin, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, first.token_id)
        assert await described(bob) & seen == {first.token_id}
        await allow(admin, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:erin")
        assert await described(bob) & seen == seen
        assert await described(bob, "erin") == {second.token_id}


async def allow(admin: Channel, operation: Operation, resource_type: ResourceType, name: str) -> None:
    """Bob, from everywhere."""
    bound = rule(operation, resource_type, name, host="*", principal="User:bob")
    assert await create_rules(admin, [bound]) == [0]


async def test_a_renewer_is_a_user(broker: RunningBroker) -> None:
    async with logged_in(broker) as admin:
        assert (await create(admin, "x", kind="Group")).error_code == InvalidPrincipalType.code


async def test_renewers_are_few_and_their_names_short(broker: RunningBroker) -> None:
    """Every broker remembers them, and each logged-in client names them."""
    async with logged_in(broker, "bob", "builder") as bob:
        before = await described(bob)
        for renewers in (
            [str(number) for number in range(DELEGATION_TOKEN_RENEWERS_MAX + 1)],
            [str(number) for number in range(20_000)],
            ["x" * (PRINCIPAL_NAME_BYTES_MAX + 1)],
            ["ü" * PRINCIPAL_NAME_BYTES_MAX],
        ):
            assert (await create(bob, *renewers)).error_code == InvalidRequest.code
        assert await described(bob) == before
        most = [f"{number:{PRINCIPAL_NAME_BYTES_MAX}}" for number in range(DELEGATION_TOKEN_RENEWERS_MAX)]
        token = await create(bob, *most)
        assert token.error_code == 0
        assert token.token_id in await described(bob, most[-1])
        assert (await expire(bob, token.hmac, -1)).error_code == 0


async def test_many_owners_are_asked_for_in_slices(broker: RunningBroker) -> None:
    async with logged_in(broker) as admin:
        token = await create(admin, owner="zoe")
        assert await described(admin, *map(str, range(50_000)), "zoe") == {token.token_id}
        assert (await expire(admin, token.hmac, -1)).error_code == 0


async def test_without_a_secret_there_are_no_tokens() -> None:
    with sasl_broker() as broker:
        async with logged_in(broker) as admin:
            assert (await create(admin)).error_code == DelegationTokenAuthDisabled.code


async def test_who_is_unknown_gets_no_token() -> None:
    with run_broker({"delegation.token.secret.key": SECRET}) as broker:
        channel = await Channel.connect(Endpoint.parse(broker.bootstrap))
        assert (await create(channel)).error_code == DelegationTokenRequestNotAllowed.code
        channel.close()


async def test_tokens_outlive_the_broker(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("data")
    settings = {"delegation.token.secret.key": SECRET}
    with sasl_broker(settings, data_dir=data) as broker:
        async with logged_in(broker) as admin:
            token = await create(admin)
    with sasl_broker(settings, data_dir=data) as broker:
        password = base64.b64encode(token.hmac).decode()
        async with logged_in(broker, token.token_id, password, by_token=True):
            pass
