"""Connections: one attempt for all callers, rest after failures, idle ones closed, nothing left behind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.support.scripted_broker import scripted_broker

from barnabas.client.aio.channel import Channel
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import (
    COORDINATOR,
    ConnectionOptions,
    Connections,
    connect_by_socket,
)
from barnabas.client.aio.metadata_updates import MetadataOptions
from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.core.cluster_state import GROUP
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.backoff import Backoff
from barnabas.core.clock import SystemClock
from barnabas.core.errors import NetworkException, RebootstrapRequired, RequestTimedOut
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

OPTIONS = ConnectionOptions(backoff=Backoff(10, 40))
NOWHERE = Endpoint("127.0.0.1", 1)


def empty(request: MetadataRequest, version: int) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[])


async def test_callers_share_one_attempt_and_lanes_do_not() -> None:
    async with scripted_broker({ApiKey.METADATA: empty}) as broker:
        connections = Connections(OPTIONS, random.Random(1))
        channels = await asyncio.gather(*(connections.to(broker.address) for _ in range(10)))
        assert len(set(map(id, channels))) == 1
        assert await connections.to(broker.address, COORDINATOR) is not channels[0]
        await connections.close()
        assert all(channel.is_closed for channel in channels)
        with pytest.raises(ClientClosed):
            await connections.to(broker.address)


async def test_a_caller_that_gives_up_leaves_the_attempt_to_the_others() -> None:
    async with scripted_broker({ApiKey.METADATA: empty}) as broker:
        connections = Connections(OPTIONS, random.Random(1))
        first = asyncio.ensure_future(connections.to(broker.address))
        second = asyncio.ensure_future(connections.to(broker.address))
        await asyncio.sleep(0)
        first.cancel()
        assert not (await second).is_closed
        await connections.close()


@pytest.mark.parametrize("error", [NetworkException("refused"), RuntimeError("a fault of a library")])
async def test_an_address_that_fails_rests_longer_each_time(error: Exception) -> None:
    limits: list[float] = []

    async def refuse(address: Endpoint, options: ConnectionOptions, timeout_ms: float) -> Channel:
        limits.append(timeout_ms)
        raise error

    options = replace(OPTIONS, setup_timeout_ms=10, setup_timeout_max_ms=30)
    connections = Connections(options, random.Random(1), refuse)
    loop = asyncio.get_running_loop()
    pauses = []
    for _ in range(4):
        begun_s = loop.time()
        with pytest.raises(type(error)):
            await connections.to(NOWHERE)
        pauses.append((loop.time() - begun_s) * 1_000)
    assert pauses[1] >= 8
    assert pauses[2] >= 16
    assert pauses[3] >= 32
    assert limits == [10, 20, 30, 30]
    other = Endpoint("127.0.0.1", 2)
    assert connections.ready([NOWHERE, other]) == [other, NOWHERE]
    await connections.close()


async def test_closing_ends_an_attempt_in_progress() -> None:
    begun = asyncio.Event()

    async def hang(address: Endpoint, options: ConnectionOptions, timeout_ms: float) -> Channel:
        begun.set()
        await asyncio.sleep(3_600)
        raise AssertionError

    connections = Connections(OPTIONS, random.Random(1), hang)
    asking = asyncio.ensure_future(connections.to(NOWHERE))
    await begun.wait()
    await connections.close()
    with pytest.raises(ClientClosed):
        await asking
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_idle_connections_are_closed_and_opened_again() -> None:
    async with scripted_broker({ApiKey.METADATA: empty}) as broker:
        connections = Connections(replace(OPTIONS, idle_ms_max=20), random.Random(1))
        channel = await connections.to(broker.address)
        await _until(lambda: channel.is_closed)
        assert connections.open_channels() == []
        assert not (await connections.to(broker.address)).is_closed
        await connections.close()


async def test_a_throttled_channel_says_so_and_send_waits() -> None:
    answers = iter([40, 0])

    def throttled(request: MetadataRequest, version: int) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[], throttle_time_ms=next(answers))

    async with scripted_broker({ApiKey.METADATA: throttled}) as broker:
        channel = await connect_by_socket(broker.address, OPTIONS, 1_000)
        assert channel.throttled_ms == 0
        await channel.send(MetadataRequest(topics=[]), MetadataResponse)
        assert 0 < channel.throttled_ms <= 40
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await channel.send(MetadataRequest(topics=[]), MetadataResponse)
        assert loop.time() - begun_s >= 0.03
        channel.close()


def named(*addresses: Endpoint, leader: int = 1) -> Callable[[MetadataRequest, int], MetadataResponse]:
    """A script whose brokers are at these addresses, from id 1 on."""

    def script(request: MetadataRequest, version: int) -> MetadataResponse:
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=leader, leader_epoch=1, replica_nodes=[], isr_nodes=[]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=number, host=each.host, port=each.port)
                for number, each in enumerate(addresses, 1)
            ],
            topics=[
                MetadataResponseTopic(name=topic.name, partitions=[partition])
                for topic in request.topics or ()
            ],
        )

    return script


def client(*bootstrap: Endpoint, **options: float) -> ClusterClient:
    return ClusterClient(
        bootstrap,
        clock=SystemClock(),
        randomness=random.Random(1),
        options=OPTIONS,
        metadata_options=MetadataOptions(backoff=Backoff(5, 20), **options),  # type: ignore[arg-type]
    )


async def test_wanted_metadata_is_waited_for_and_kept_fresh() -> None:
    async with scripted_broker({}) as broker:
        broker.script[ApiKey.METADATA] = named(broker.address)
        async with client(broker.address, age_ms_max=20) as cluster:
            cluster.updates.start()
            cluster.metadata.want("t")
            await cluster.updates.until(lambda: cluster.metadata.has_leaders("t"), 5_000, "topic t")
            version = cluster.metadata.version
            await _until(lambda: cluster.metadata.version > version + 1)
            assert (await cluster.channel_to(1)).address == broker.address
    assert len(asyncio.all_tasks()) == 1


async def test_metadata_that_does_not_come_is_a_timeout_with_its_reason() -> None:
    async with scripted_broker({ApiKey.METADATA: empty}) as broker:
        async with client(broker.address) as cluster:
            cluster.updates.start()
            with pytest.raises(RequestTimedOut, match="topic t within 30 ms"):
                await cluster.updates.until(lambda: False, 30, "topic t")


async def test_a_client_whose_brokers_all_moved_begins_again_with_the_bootstrap_addresses() -> None:
    async with scripted_broker({}) as new, scripted_broker({}) as old:
        new.script[ApiKey.METADATA] = named(new.address)
        old.script[ApiKey.METADATA] = named(old.address)
        async with client(old.address, new.address) as cluster:
            cluster.updates.start()
            cluster.updates.request()
            await _until(lambda: cluster.metadata.brokers == {1: old.address})

            def demand(request: MetadataRequest, version: int) -> MetadataResponse:
                return MetadataResponse(brokers=[], topics=[], error_code=RebootstrapRequired.code)

            old.script[ApiKey.METADATA] = demand
            cluster.updates.request()
            await _until(lambda: not cluster.metadata.brokers)
            old.hang_up()
            old.script[ApiKey.METADATA] = named(new.address)
            await _until(lambda: cluster.metadata.brokers == {1: new.address})


async def test_a_coordinator_that_moved_is_reached_at_its_new_address() -> None:
    def found(request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        row = Coordinator(key="g", node_id=1, host=NOWHERE.host, port=NOWHERE.port)
        return FindCoordinatorResponse(coordinators=[row])

    async with scripted_broker({ApiKey.FIND_COORDINATOR: found}) as broker:
        broker.script[ApiKey.METADATA] = named(broker.address)
        async with client(broker.address) as cluster:
            await cluster.refresh(())
            assert cluster.address_of(1) == broker.address
            assert await cluster.coordinator("g", GROUP) == 1
            assert cluster.address_of(1) == NOWHERE


async def _until(condition: Callable[[], bool]) -> None:
    wait: Awaitable[None]
    for _ in range(1_000):
        if condition():
            return
        wait = asyncio.sleep(0.005)
        await wait
    raise AssertionError("it did not come true")
