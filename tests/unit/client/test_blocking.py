"""A blocking connection to one broker, through everything that a broker may do to it."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from tests.support.scripted_broker import (
    DRIP,
    HANG_UP,
    SILENCE,
    Answer,
    Script,
    ScriptedBroker,
    broker_in_thread,
)

from barnabas.client.blocking import Connection
from barnabas.client.core.session import Pending, Session
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import NetworkException, UnsupportedVersion
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def echo_topics(request: MetadataRequest, _: int) -> MetadataResponse:
    names = [row.name for row in request.topics or []]
    return MetadataResponse(topics=[MetadataResponseTopic(name=name) for name in names])


ECHO: Script = {ApiKey.METADATA: echo_topics}


def about(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)])


def connect(broker: ScriptedBroker, request_timeout_ms: float = 60_000) -> Connection:
    return Connection.connect(
        broker.address, client_id="me", connect_timeout_ms=60_000, request_timeout_ms=request_timeout_ms
    )


def name_in(answer: MetadataResponse) -> str | None:
    return answer.topics[0].name


def test_answers_are_taken_in_the_order_of_the_requests() -> None:
    with broker_in_thread(ECHO) as broker:
        connection = connect(broker)
        for name in ("a", "b", "c"):
            connection.post(about(name), MetadataResponse)
        assert [name_in(connection.take()) for _ in range(3)] == ["a", "b", "c"]
        connection.close()


def test_ask_returns_its_own_answer_and_keeps_those_of_posted_requests() -> None:
    with broker_in_thread(ECHO) as broker:
        connection = connect(broker)
        connection.post(about("a"), MetadataResponse)
        connection.post(about("b"), MetadataResponse)
        assert name_in(connection.ask(about("c"), MetadataResponse)) == "c"
        assert [name_in(connection.take()) for _ in range(2)] == ["a", "b"]
        connection.close()


def test_large_requests_and_answers_arrive_whole() -> None:
    names = [f"topic-{number:060}" for number in range(5_000)]
    with broker_in_thread(ECHO) as broker:
        connection = connect(broker)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        for _ in range(3):
            answer = connection.ask(request, MetadataResponse)
            assert [row.name for row in answer.topics] == names
        connection.close()


def test_a_version_that_does_not_fit_is_said_before_anything_is_sent() -> None:
    with broker_in_thread(ECHO) as broker:
        connection = connect(broker)
        with pytest.raises(UnsupportedVersion, match="has no usable version of Produce"):
            connection.ask(ProduceRequest(), MetadataResponse)
        assert name_in(connection.ask(about("a"), MetadataResponse)) == "a"
        connection.close()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (HANG_UP, "it closed the connection|connection reset"),
        (SILENCE, "it did not answer Metadata in time"),
        (DRIP, "it did not answer Metadata in time"),
        (struct.pack(">i", 999) + b"\0" + MetadataResponse().encode(13), "cannot be decoded"),
        (b"\0", "cannot be decoded"),
    ],
    ids=["gone", "silent", "a byte now and then", "another's answer", "cut short"],
)
def test_any_error_closes_the_connection(answer: Answer, why: str) -> None:
    with broker_in_thread({ApiKey.METADATA: lambda _request, _version: answer}) as broker:
        connection = connect(broker, request_timeout_ms=200)
        with pytest.raises(NetworkException, match=f"lost the connection to {broker.address}: .*({why})"):
            connection.ask(about("a"), MetadataResponse)
        assert connection.is_closed
        with pytest.raises(NetworkException, match="closed by this client"):
            connection.post(about("a"), MetadataResponse)
        with pytest.raises(NetworkException, match="closed by this client"):
            connection.take()


def test_a_refused_connection_names_the_reason() -> None:
    with broker_in_thread(ECHO) as broker:
        nobody = broker.address
    nowhere = Endpoint("no-such-host.invalid", 1)
    for wrong, why in ((nobody, "connection refused"), (nowhere, "unknown host")):
        with pytest.raises(NetworkException, match=rf"cannot reach {wrong} \({why}\)"):
            Connection.connect(wrong, client_id="me", connect_timeout_ms=60_000, request_timeout_ms=60_000)


def test_a_request_has_its_time_as_a_whole_however_slowly_it_is_read() -> None:
    here, there = socket.socketpair()
    is_over = threading.Event()

    def read_slowly() -> None:
        while not is_over.wait(0.01):
            there.recv(4096)

    address = Endpoint("127.0.0.1", 9092)
    session: Session[Pending] = Session(address, "me")
    session.api_versions = {ApiKey.PRODUCE: (0, 9)}
    connection = Connection(here, address, session, SystemClock(), timeout_ms=200)
    rows = PartitionProduceData(index=0, records=bytes(32 << 20))
    request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[rows])])
    reader = threading.Thread(target=read_slowly)
    reader.start()
    try:
        with pytest.raises(NetworkException, match="timed out"):
            connection.post(request, ProduceResponse)
    finally:
        is_over.set()
        reader.join()
        there.close()
    assert connection.is_closed
