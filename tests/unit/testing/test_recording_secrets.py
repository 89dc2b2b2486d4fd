"""Recordings hold no secrets, and belong to their owner alone."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.schema.headers import encode_request
from barnabas.protocol.schema.message import Message
from barnabas.testing.traffic.frames import framed, joined, read_frame
from barnabas.testing.traffic.recorder import recording
from barnabas.testing.traffic.recording import RecordingWriter, read_recording

SECRET = b"open sesame"


def encoded(api: ApiKey, version: int, message: Message) -> bytes:
    assert isinstance(message, request_class(api))
    return joined(encode_request(api, version, 1, "client", message))


def a_config(name: str) -> bytes:
    config = AlterableConfig(name=name, config_operation=0, value=SECRET.decode())
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    return encoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)


HANDSHAKE = encoded(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"))
RENEWAL = RenewDelegationTokenRequest(hmac=SECRET, renew_period_ms=1)


async def passed_on(path: Path, frames: list[bytes]) -> list[bytes]:
    """Record frames to a broker that answers with what it gets; returns the recorded frames."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await read_frame(reader)) is not None:
            writer.write(framed(frame))
        writer.close()

    writer = RecordingWriter(path)
    broker = await asyncio.start_server(echo, "127.0.0.1", 0)
    address = Endpoint("127.0.0.1", broker.sockets[0].getsockname()[1])
    try:
        async with recording(Endpoint("127.0.0.1", 0), address, writer) as bound:
            client, to_proxy = await asyncio.open_connection(bound.host, bound.port)
            for frame in frames:
                to_proxy.write(framed(frame))
                assert await read_frame(client) == frame
            to_proxy.close()
            await to_proxy.wait_closed()
    finally:
        writer.close()
        broker.close()
    return [each.frame for each in read_recording(path)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([HANDSHAKE, b"\0alice\0" + SECRET], id="token without a header"),
        pytest.param([encoded(ApiKey.RENEW_DELEGATION_TOKEN, 1, RENEWAL)], id="delegation token"),
        pytest.param([a_config("listener.name.tls.ssl.keystore.password")], id="config"),
        pytest.param([a_config("listener.name.sasl.scram-sha-256.sasl.jaas.config")], id="login"),
    ],
)
async def test_a_secret_is_passed_on_and_not_recorded(tmp_path: Path, frames: list[bytes]) -> None:
    kept = await passed_on(tmp_path / "recording", frames)
    assert len(kept) == 2 * len(frames)
    assert not any(SECRET in each for each in kept)
    assert kept[-1] == b""


async def test_requests_after_a_login_without_headers_are_recorded(tmp_path: Path) -> None:
    plain = a_config("log.cleaner.threads")
    kept = await passed_on(tmp_path / "recording", [HANDSHAKE, b"\0alice\0" + SECRET, plain])
    assert kept == [HANDSHAKE, HANDSHAKE, b"", b"", plain, plain]


def test_only_the_owner_may_read_a_recording_over_an_older_file(tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.write_text("older")
    path.chmod(0o644)
    RecordingWriter(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
