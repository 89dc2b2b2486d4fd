"""Responses have the correlation id of their request and leave in order, with records straight from the
file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.network.transport.sockets import Sockets
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.testing.broker import run_broker
from tests.support.in_process import in_process_broker
from tests.support.wire import (
    FETCH,
    METADATA,
    METADATA_VERSION,
    WireConnection,
    array,
    batch,
    fetch_body,
    framed,
    request_header,
)


@pytest.fixture(scope="module")
def connection() -> Iterator[WireConnection]:
    with run_broker() as broker:
        host, port = broker.bootstrap.split(":")
        with WireConnection(host, int(port)) as opened:
            yield opened


def test_every_answer_carries_the_correlation_id_of_its_request(connection: WireConnection) -> None:
    ids = [7, 0, -1, 2**31 - 1, -(2**31), 7]
    for each in ids:
        connection.send_raw(framed(request_header(METADATA, METADATA_VERSION, each) + array([])))
    assert [connection.receive()[0] for _ in ids] == ids


def test_an_answer_that_waits_holds_back_those_behind_it(connection: WireConnection) -> None:
    assert connection.create_topic("ordered") == 0
    waits = connection.send(FETCH, 4, fetch_body("ordered", 0, max_wait_ms=50))
    quick = connection.send(METADATA, METADATA_VERSION, array([]))
    assert [connection.receive()[0], connection.receive()[0]] == [waits, quick]


async def test_fetched_records_leave_by_sendfile(tmp_path: Path) -> None:
    sent: list[int] = []

    def counted(out: int, source: int, offset: int, count: int) -> int:
        sent.append(os.sendfile(out, source, offset, count))
        return sent[-1]

    async with in_process_broker(tmp_path, sockets=Sockets(send_file=counted)) as broker:
        assert await broker.create_topic("topic") == 0
        values = [bytes([n]) * 100_000 for n in range(5)]
        for value in values:
            assert (await broker.produce("topic", value)).error_code == 0
        assert sent == []
        assert await broker.read_all("topic") == values
    assert sum(sent) == sum(len(batch([value])) for value in values)


async def test_the_levels_of_groups_and_transactions_are_told(tmp_path: Path) -> None:
    async with in_process_broker(tmp_path) as broker:
        request = ApiVersionsRequest(client_software_name="a-client", client_software_version="1.0")
        answer = await broker.ask(request, ApiVersionsResponse, 4)
        assert {each.name: each.max_version_level for each in answer.finalized_features} == {
            "group.version": 1,
            "transaction.version": 2,
        }
