"""Arrays in requests that are empty, or say that they are larger than the request, on real sockets."""

from __future__ import annotations

import logging
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.client.aio.channel import Channel
from barnabas.core.errors import KafkaError
from barnabas.core.ids import ZERO_UUID
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.declarations import Field
from barnabas.protocol.schema.message import Message
from barnabas.testing.broker import run_broker
from tests.support import wire
from tests.support.embedded_cluster import cluster_broker, shared_store
from tests.support.hostile import frame_of

PEAK_BYTES_MAX = 256 << 10
"""Of a request of some hundred bytes. A list of 90,000 places would be 700 KB."""


def filled(cls: type[Message], version: int, arrays: list[int], *, null: bool = False) -> Any:
    """`arrays[depth]` is how many elements the arrays at that depth have, none beyond."""

    def value(field: Field) -> Any:
        kind = field.kind
        if kind.element is not None:
            if null and not arrays and version in field.nullable:
                return None
            count = arrays[0] if arrays else 0
            inner = kind.element.message
            if inner is not None:
                assert issubclass(inner, Message)
                return [filled(inner, version, arrays[1:], null=null)] * count
            return [_nothing(kind.element.name, field.name)] * count
        if kind.message is not None:
            assert issubclass(kind.message, Message)
            return None if null and version in field.nullable else filled(kind.message, version, arrays)
        return _nothing(kind.name, field.name)

    return cls(**{field.name: value(field) for field in cls.__schema__.fields if version in field.versions})


def _nothing(kind: str, name: str) -> Any:
    if kind == "string":
        return "here" if "topic" in name or name == "name" else ""
    if kind in ("bytes", "records"):
        return b""
    if kind == "bool":
        return False
    if kind == "float64":
        return 0.0
    if name == "acks":
        return -1  # otherwise nobody is answered
    return ZERO_UUID if kind == "uuid" else 0


WAITS_FOR_OTHERS = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})


@pytest.mark.slow
async def test_no_empty_array_harms_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CVE-2026-83525: each API in each version, those of brokers included, with arrays that are empty or null
    at each depth."""
    caplog.set_level(logging.WARNING)
    async with shared_store(tmp_path, monkeypatch):
        broker = cluster_broker(
            tmp_path / "1",
            broker_id=1,
            group_initial_rebalance_delay_ms=0,
            offsets_topic_replication_factor=1,
            transaction_state_log_replication_factor=1,
        )
        await broker.start()
        try:
            assert await broker.create_topic("here") == 0
            channel = await Channel.connect(broker.address)
            for api in APIS:
                if api.key is ApiKey.CONTROLLED_SHUTDOWN:
                    continue
                for version in api.versions:
                    for arrays in ([], [1], [1, 1], [2, 1, 1]):
                        for null in (False, True):
                            message = filled(request_class(api.key), version, arrays, null=null)
                            if channel.is_closed:
                                channel = await Channel.connect(broker.address)
                            with suppress(KafkaError):
                                await channel.send(
                                    message,
                                    response_class(api.key),
                                    version_max=version,
                                    timeout_ms=300 if api.key in WAITS_FOR_OTHERS else 5_000,
                                )
            channel.close()
            faults = [record.getMessage() for record in caplog.records if record.exc_info]
            assert not faults
            # Who was the controller is it still, and does what a controller does.
            assert await broker.create_topic("after") == 0
            assert (await broker.produce("after", b"x")).error_code == 0
        finally:
            await broker.stop()


class Sized(NamedTuple):
    """A request whose first array says how many elements it has."""

    api: ApiKey
    declared: int
    payload: bytes


def with_counts(counts: tuple[int, ...]) -> Iterator[Sized]:
    """Each API that has an array, in its last version, with little behind the count."""
    for api in APIS.for_clients():
        version = api.versions[-1]
        few, more = (
            frame_of(api.key, version, filled(request_class(api.key), version, [count])) for count in (8, 9)
        )
        at = next(
            (place for place, pair in enumerate(zip(few, more, strict=False)) if pair[0] != pair[1]), None
        )
        if at is None:
            continue
        is_flexible = version in request_class(api.key).__schema__.flexible
        start = at if is_flexible else at - 3
        for count in counts:
            said = unsigned_varint(count + 1) if is_flexible else struct.pack(">i", count)
            yield Sized(api.key, count, few[:start] + said + few[at + 1 :])


def unsigned_varint(value: int) -> bytes:
    return wire.varint(value >> 1) if value % 2 == 0 else wire.varint(-(value >> 1) - 1)


def peak_of(connection: wire.WireConnection, payload: bytes) -> int:
    """Peak of Python's memory during the request, above the level before it."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    connection.send_raw(wire.framed(payload))
    with suppress(EOFError, ConnectionError):
        connection.receive()
    return tracemalloc.get_traced_memory()[1] - before


def test_a_count_takes_no_memory() -> None:
    """CVE-2026-111108, CVE-2026-111115: neither one below the bound on elements nor one above it."""
    tried = set()
    with run_broker() as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        tracemalloc.start()
        try:
            for warms_up in (True, False):
                for api, declared, payload in with_counts((90_000, 0x7FFF_FFF0)):
                    with wire.WireConnection("127.0.0.1", port) as connection:
                        taken = peak_of(connection, payload)
                    assert warms_up or taken < PEAK_BYTES_MAX, f"{api.name}, {declared}: {taken}"
                    tried.add(api)
        finally:
            tracemalloc.stop()
    assert {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.CREATE_TOPICS} <= tried
