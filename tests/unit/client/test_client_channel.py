"""One connection to one broker, through everything that a broker may do to it."""

from __future__ import annotations

import asyncio
import gc
import struct
from typing import Any

import pytest
from tests.support.scripted_broker import DRIP, HANG_UP, SILENCE, Answer, ScriptedBroker, scripted_broker

from barnabas.client.aio.channel import Channel
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import NetworkException, RequestTimedOut, UnsupportedVersion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def unwanted(told: object) -> None:
    pytest.fail(f"{told}")


def echo_topics(request: MetadataRequest, _: int) -> MetadataResponse:
    names = [row.name for row in request.topics or []]
    return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in names])


def ask(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


async def connect(broker: ScriptedBroker, **options: Any) -> Channel:
    return await Channel.connect(broker.address, **options)


async def test_an_answer_is_freed_with_its_last_reference() -> None:
    async with scripted_broker({ApiKey.METADATA: echo_topics}) as broker:
        channel = await connect(broker)
        gc.collect()
        gc.disable()
        try:
            for number in range(10):
                await channel.send(ask(f"t{number}"), MetadataResponse)
            left = [each for each in gc.get_objects() if isinstance(each, MetadataResponse)]
            assert len(left) <= 1, "but for what the scripted broker has in its hands"
        finally:
            gc.enable()


async def test_requests_in_flight_each_get_their_own_answer() -> None:
    async with scripted_broker({ApiKey.METADATA: echo_topics}) as broker:
        channel = await connect(broker)
        answers = await asyncio.gather(
            *(channel.send(ask(f"t{number}"), MetadataResponse) for number in range(50))
        )
        assert [answer.topics[0].name for answer in answers] == [f"t{number}" for number in range(50)]
        await channel.finish()


async def test_the_highest_version_of_both_sides_is_spoken() -> None:
    spoken = []

    def note(request: MetadataRequest, version: int) -> MetadataResponse:
        spoken.append(version)
        return echo_topics(request, version)

    async with scripted_broker({ApiKey.METADATA: note}, {ApiKey.METADATA: (1, 8)}) as broker:
        channel = await connect(broker)
        await channel.send(ask("t"), MetadataResponse)
        await channel.send(ask("t"), MetadataResponse, version_max=4)
        assert spoken == [8, 4]
        assert not channel.supports(ApiKey.PRODUCE)
        with pytest.raises(UnsupportedVersion, match="has no usable version of Produce"):
            await channel.send(ProduceRequest(), MetadataResponse)
        with pytest.raises(UnsupportedVersion, match="it has 1 to 8"):
            channel.version_for(MetadataRequest, version_max=0)
        await channel.finish()


async def test_an_older_broker_is_asked_for_its_versions_again() -> None:
    asked = []

    def old(request: object, version: int) -> Answer:
        asked.append(version)
        row = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
        if version > 2:
            # In version 0, whatever the version asked for; the correlation id is that of a first request.
            refusal = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=[row])
            return struct.pack(">i", 0) + refusal.encode(0)
        return ApiVersionsResponse(api_keys=[row])

    async with scripted_broker({ApiKey.API_VERSIONS: old}) as broker:
        channel = await connect(broker)
        assert asked == [5, 2]
        assert channel.api_versions == {ApiKey.API_VERSIONS: (0, 2)}
        await channel.finish()


async def test_a_refused_connection_names_the_reason() -> None:
    async with scripted_broker({}) as broker:
        address = broker.address
    with pytest.raises(NetworkException, match=rf"cannot reach {address} \(connection refused\)"):
        await Channel.connect(address)


async def test_an_unknown_host_is_said_in_words() -> None:
    with pytest.raises(NetworkException, match="unknown host"):
        await Channel.connect(Endpoint("no-such-host.invalid", 9092))
    with pytest.raises(NetworkException, match="no valid host name"):
        await Channel.connect(Endpoint("broker..example", 9092))


async def test_a_broker_that_hangs_up_fails_everything_in_flight() -> None:
    def hang_up_on_second(request: MetadataRequest, version: int) -> Answer:
        name = (request.topics or [])[0].name
        return HANG_UP if name == "second" else SILENCE

    async with scripted_broker({ApiKey.METADATA: hang_up_on_second}) as broker:
        channel = await connect(broker)
        outcomes = await asyncio.gather(
            channel.send(ask("first"), MetadataResponse),
            channel.send(ask("second"), MetadataResponse),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [NetworkException, NetworkException]
        assert f"lost the connection to {broker.address}" in str(outcomes[0])
        assert channel.is_closed
        with pytest.raises(NetworkException):
            await channel.send(ask("third"), MetadataResponse)


async def test_an_answer_that_does_not_come_closes_the_channel() -> None:
    async with scripted_broker({ApiKey.METADATA: lambda _request, _version: SILENCE}) as broker:
        channel = await connect(broker)
        patient = asyncio.ensure_future(channel.send(ask("t"), MetadataResponse))
        with pytest.raises(RequestTimedOut, match="did not answer Metadata within 20 ms"):
            await channel.send(ask("t"), MetadataResponse, timeout_ms=20)
        with pytest.raises(NetworkException, match="did not answer"):
            await patient
        assert channel.is_closed


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", 999) + b"\0" + MetadataResponse().encode(13),
        b"\0",
        struct.pack(">i", 1) + b"\0\xff\xff\xff\xff\xff\xff\xff",
    ],
    ids=["another's answer", "cut short", "nonsense"],
)
async def test_an_answer_that_makes_no_sense_closes_the_channel(frame: bytes) -> None:
    async with scripted_broker({ApiKey.METADATA: lambda _request, _version: frame}) as broker:
        channel = await connect(broker)
        with pytest.raises(NetworkException, match="cannot be decoded"):
            await channel.send(ask("t"), MetadataResponse)
        assert channel.is_closed


async def test_a_caller_that_gives_up_does_not_disturb_the_others() -> None:
    held = asyncio.Event()

    async with scripted_broker({ApiKey.METADATA: echo_topics}) as broker:
        channel = await connect(broker)
        first = asyncio.ensure_future(channel.send(ask("first"), MetadataResponse))
        second = asyncio.ensure_future(channel.send(ask("second"), MetadataResponse))
        first.cancel()
        held.set()
        assert (await second).topics[0].name == "second"
        assert not channel.is_closed
        await channel.finish()


async def test_a_large_answer_arrives_whole() -> None:
    names = [f"topic-{number:060}" for number in range(5_000)]

    def many(request: object, version: int) -> MetadataResponse:
        return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in names])

    async with scripted_broker({ApiKey.METADATA: many}) as broker:
        channel = await connect(broker)
        answers = await asyncio.gather(*(channel.send(ask("t"), MetadataResponse) for _ in range(3)))
        assert all([row.name for row in answer.topics] == names for answer in answers)
        await channel.finish()


async def test_requests_without_an_answer_have_left_when_the_channel_is_finished() -> None:
    arrived = asyncio.Event()

    def swallow(request: ProduceRequest, version: int) -> str:
        arrived.set()
        return SILENCE

    async with scripted_broker({ApiKey.PRODUCE: swallow}) as broker:
        channel = await connect(broker)
        more_than_a_socket_holds = PartitionProduceData(index=0, records=bytes(32 << 20))
        topic = TopicProduceData(name="t", partition_data=[more_than_a_socket_holds])
        await channel.send_unanswered(ProduceRequest(acks=0, topic_data=[topic]))
        await channel.finish()
        async with asyncio.timeout(60):
            await arrived.wait()


async def test_a_posted_request_is_answered_where_the_answer_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    is_arriving = False
    buffer_updated = Channel.buffer_updated

    def noted(channel: Channel, nbytes: int) -> None:
        nonlocal is_arriving
        is_arriving = True
        buffer_updated(channel, nbytes)
        is_arriving = False

    monkeypatch.setattr(Channel, "buffer_updated", noted)
    async with scripted_broker({ApiKey.METADATA: echo_topics}) as broker:
        channel = await connect(broker)
        names: list[str | None] = []
        at_once: list[bool] = []
        done = asyncio.Event()

        def answered(answer: MetadataResponse) -> None:
            at_once.append(is_arriving)
            names.append(answer.topics[0].name)
            if len(names) == 3:
                done.set()
            else:
                post(f"t{len(names)}")

        def post(name: str) -> None:
            version = channel.version_for(MetadataRequest)
            channel.post(
                ask(name), MetadataResponse, version, answered=answered, failed=unwanted, timeout_ms=60_000
            )

        post("t0")
        async with asyncio.timeout(60):
            await done.wait()
        assert names == ["t0", "t1", "t2"]
        assert at_once == [True] * 3, "no turn of the loop lies between"
        await channel.finish()


@pytest.mark.parametrize(
    ("answer", "expected"), [(HANG_UP, NetworkException), (SILENCE, RequestTimedOut)], ids=["gone", "silent"]
)
async def test_a_posted_request_fails_once(answer: Answer, expected: type[Exception]) -> None:
    async with scripted_broker({ApiKey.METADATA: lambda _request, _version: answer}) as broker:
        channel = await connect(broker)
        failures: list[Exception] = []
        failed = asyncio.Event()

        def note(error: Exception) -> None:
            failures.append(error)
            failed.set()

        version = channel.version_for(MetadataRequest)
        channel.post(ask("t"), MetadataResponse, version, answered=unwanted, failed=note, timeout_ms=200)
        async with asyncio.timeout(60):
            await failed.wait()
        await channel.finish()
        assert [type(failure) for failure in failures] == [expected]
        assert channel.is_closed


async def test_a_request_that_was_answered_in_time_never_expires() -> None:
    async with scripted_broker({ApiKey.METADATA: echo_topics}) as broker:
        channel = await connect(broker)
        await channel.send(ask("t"), MetadataResponse, timeout_ms=1_000)
        await asyncio.sleep(1.1)  # longer than the request would have waited
        assert not channel.is_closed
        await channel.finish()


async def test_a_broker_that_stops_reading_delays_a_request_until_its_timeout() -> None:
    async with scripted_broker(
        {ApiKey.METADATA: lambda *_: DRIP, ApiKey.PRODUCE: lambda *_: SILENCE}
    ) as broker:
        channel = await connect(broker)
        patient = asyncio.ensure_future(channel.send(ask("t"), MetadataResponse))
        await asyncio.sleep(0)  # it is the first to be read, and the last
        more_than_a_socket_holds = PartitionProduceData(index=0, records=bytes(32 << 20))
        topic = TopicProduceData(name="t", partition_data=[more_than_a_socket_holds])
        await channel.send_unanswered(ProduceRequest(acks=0, topic_data=[topic]))
        async with asyncio.timeout(60):
            with pytest.raises(RequestTimedOut, match="did not read Metadata within 20 ms"):
                await channel.send(ask("t"), MetadataResponse, timeout_ms=20)
        with pytest.raises(NetworkException, match="did not read Metadata"):
            await patient
        assert channel.is_closed
