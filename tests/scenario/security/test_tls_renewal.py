"""Certificates that change while the broker runs: by its settings, and by its files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from barnabas.client.aio.channel import Channel
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.node.broker import Broker
from barnabas.protocol.config_numbers import ConfigOperation, ResourceType
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.security.tls import listeners
from barnabas.security.tls.settings import TlsSettings
from tests.support.waiting import PATIENCE_S

READ_BY_TLS_LISTENERS: Mapping[str, Callable[[TlsSettings], object]] = {
    "ssl.keystore.type": lambda settings: settings.keys.type,
    "ssl.keystore.location": lambda settings: settings.keys.location,
    "ssl.truststore.type": lambda settings: settings.trusted.type,
    "ssl.truststore.location": lambda settings: settings.trusted.location,
}


@dataclass
class Secured:
    broker: Broker
    channel: Channel
    authority: trustme.CA
    directory: Path
    made: list[listeners.TlsListeners]

    @property
    def settings(self) -> TlsSettings:
        return self.made[0].by_name["OUTSIDE"].current.settings

    def issue(self, name: str, *, authority: trustme.CA | None = None, host: str = "localhost") -> Path:
        path = self.directory / name
        issued = (authority or self.authority).issue_cert(
            host, common_name="broker", organization_unit_name="x"
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    async def alter(self, name: str, value: str | None, *, entity: str = "1") -> str | None:
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = AlterableConfig(name=name, config_operation=operation, value=value)
        resource = AlterConfigsResource(
            resource_type=ResourceType.BROKER, resource_name=entity, configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = (await self.channel.send(request, IncrementalAlterConfigsResponse)).responses
        return None if result.error_code == 0 else result.error_message

    async def shown_serial(self) -> int:
        """The serial number of the certificate that a new client gets to see."""
        from cryptography import x509

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        (port,) = [e.endpoint.port for e in self.broker.bound_listeners if e.listener_name == "OUTSIDE"]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.transport.abort()
        return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
async def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    made: list[listeners.TlsListeners] = []
    initialize = listeners.TlsListeners.__init__

    def recording(self: listeners.TlsListeners, *arguments: object) -> None:
        made.append(self)
        initialize(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(listeners.TlsListeners, "__init__", recording)
    monkeypatch.setattr(listeners, "SWEEP_PERIOD_MS", 50.0)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with contextlib.AsyncExitStack() as stack:
        wanted = Secured(None, None, authority, tmp_path, made)  # type: ignore[arg-type]
        properties = {
            "broker.id": "1",
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "inter.broker.listener.name": "INSIDE",
            "log.dirs": str(tmp_path / "data"),
            "listener.name.outside.ssl.keystore.type": "PEM",
            "listener.name.outside.ssl.keystore.location": str(wanted.issue("first.pem")),
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
        }
        wanted.broker = Broker(BrokerConfig.load(properties))
        await wanted.broker.startup()
        stack.push_async_callback(wanted.broker.shutdown)
        (inside,) = [e.endpoint for e in wanted.broker.bound_listeners if e.listener_name == "INSIDE"]
        wanted.channel = await Channel.connect(inside)
        stack.callback(wanted.channel.close)
        yield wanted


@pytest.mark.parametrize("name", READ_BY_TLS_LISTENERS)
async def test_a_key_of_a_listener_is_changed_and_deleted(secured: Secured, name: str) -> None:
    read = READ_BY_TLS_LISTENERS[name]
    values = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(secured.issue("second.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.directory / "other-ca.pem"),
    }
    trustme.CA().cert_pem.write_to_path(values["ssl.truststore.location"])
    before = read(secured.settings)
    prefixed = f"listener.name.outside.{name}"
    assert await secured.alter(prefixed, values[name]) is None
    assert str(read(secured.settings)) == values[name]
    assert await secured.alter(prefixed, None) is None
    assert read(secured.settings) == before


async def test_a_new_key_store_is_shown_to_new_clients(secured: Secured) -> None:
    name = "listener.name.outside.ssl.keystore.location"
    first = await secured.shown_serial()
    assert await secured.alter(name, str(secured.issue("second.pem"))) is None
    assert await secured.shown_serial() != first
    assert await secured.alter(name, None) is None
    assert await secured.shown_serial() == first


async def test_a_key_store_of_no_use_is_refused(secured: Secured) -> None:
    name = "listener.name.outside.ssl.keystore.location"
    first = await secured.shown_serial()
    (secured.directory / "bad.pem").write_text("nothing")
    for value, reason in (
        (str(secured.directory / "bad.pem"), "neither a PEM nor a PKCS12"),
        (str(secured.directory / "absent.pem"), "cannot be read"),
        (str(secured.issue("else.pem", host="elsewhere.example.org")), "ssl.allow.san.changes"),
    ):
        refused = await secured.alter(name, value)
        assert refused is not None
        assert reason in refused
    assert await secured.shown_serial() == first


@pytest.mark.parametrize(
    ("name", "entity", "reason"),
    [
        ("ssl.keystore.location", "1", "only for one listener"),
        ("listener.name.outside.ssl.keystore.location", "", "a broker id must be given"),
        ("listener.name.outside.ssl.keystore.password", "1", "cannot update these configs dynamically"),
        ("listener.name.outside.ssl.keystore.key", "1", "cannot update these configs dynamically"),
    ],
)
async def test_what_cannot_be_changed_so(secured: Secured, name: str, entity: str, reason: str) -> None:
    refused = await secured.alter(name, "x", entity=entity)
    assert refused is not None
    assert reason in refused


async def test_a_file_that_changes_is_read_again(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    first = await secured.shown_serial()
    path = secured.directory / "first.pem"
    good = path.read_bytes()
    path.write_text("half of a")
    async with asyncio.timeout(PATIENCE_S):
        while "the previous certificates stay in use" not in caplog.text:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert await secured.shown_serial() == first
    os.replace(secured.issue("second.pem"), path)  # noqa: PTH105
    async with asyncio.timeout(PATIENCE_S):
        while await secured.shown_serial() == first:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    path.write_bytes(good)
    async with asyncio.timeout(PATIENCE_S):
        while await secured.shown_serial() != first:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_how_long_the_certificate_lasts_is_a_metric(secured: Secured) -> None:
    (line,) = [
        line
        for line in render_prometheus(secured.broker.metrics).splitlines()
        if line.startswith("barnabas_tls_certificate_expires_in_seconds{")
    ]
    assert line.startswith('barnabas_tls_certificate_expires_in_seconds{listener="OUTSIDE"}')
    assert float(line.split()[-1]) > 86_400
