"""Certificates of listeners over time: renewal, and warnings before they expire."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trustme
from tests.support.manual_time import ManualClock
from tests.unit.security.tls.support import pem_file

from barnabas.config.definitions import BROKER_KEYS
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.security.tls import stores
from barnabas.security.tls.listeners import DAY_MS, TlsListeners

LISTENERS = (
    ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 1), "PLAINTEXT"),
    ListenerEndpoint("SSL", Endpoint("localhost", 2), "SSL"),
)


def test_the_end_of_a_certificate_is_announced_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = pem_file(tmp_path / "broker.pem", trustme.CA().issue_cert("localhost"))
    values = {**BROKER_KEYS.defaults(), "ssl.keystore.location": path}
    clock, metrics = ManualClock(), Metrics()
    listeners = TlsListeners(LISTENERS, values, clock, metrics)
    assert list(listeners.by_name) == ["SSL"]
    left_ms = listeners.by_name["SSL"].current.expires_ms - clock.now_ms()
    assert caplog.text == ""
    clock.advance(left_ms - 2 * DAY_MS)
    for _ in range(3):
        listeners.renew(values)
    assert caplog.text.count("the certificate of the listener SSL expires in 2.0 days") == 1
    assert 'barnabas_tls_certificate_expires_in_seconds{listener="SSL"} 172800' in render_prometheus(metrics)
    clock.advance(3 * DAY_MS)
    listeners.renew(values)
    assert "the certificate of the listener SSL has expired" in caplog.text


def test_files_of_no_use_are_complained_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = pem_file(tmp_path / "broker.pem", trustme.CA().issue_cert("localhost"))
    values = {**BROKER_KEYS.defaults(), "ssl.keystore.location": path}
    listeners = TlsListeners(LISTENERS, values, ManualClock(), Metrics())
    before = listeners.by_name["SSL"].current
    Path(path).write_text("no certificate")
    for _ in range(3):
        listeners.renew(values)
    assert caplog.text.count("the previous certificates stay in use") == 1
    assert listeners.by_name["SSL"].current is before
    pem_file(Path(path), trustme.CA().issue_cert("localhost"))
    listeners.renew(values)
    assert listeners.by_name["SSL"].current is not before


@pytest.mark.parametrize("fault", [errno.EACCES, errno.EMFILE])
def test_a_store_that_could_not_be_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: int
) -> None:
    """It was given to the broker's user after it was written, or no descriptor was free: neither shows in
    the time or the size of the file."""
    path = pem_file(tmp_path / "broker.pem", trustme.CA().issue_cert("localhost"))
    values = {**BROKER_KEYS.defaults(), "ssl.keystore.location": path}
    listeners = TlsListeners(LISTENERS, values, ManualClock(), Metrics())
    before = listeners.by_name["SSL"].current
    pem_file(Path(path), trustme.CA().issue_cert("localhost"))

    def refuse(*_: object) -> None:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as faults:
        faults.setattr(stores, "read_regular_file", refuse)
        for _ in range(3):
            listeners.renew(values)
    assert caplog.text.count("the previous certificates stay in use") == 1
    assert listeners.by_name["SSL"].current is before
    listeners.renew(values)
    renewed = listeners.by_name["SSL"].current
    assert renewed is not before
    listeners.renew(values)
    assert listeners.by_name["SSL"].current is renewed


def test_no_descriptor_for_the_key_is_complained_of_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pem_file(tmp_path / "broker.pem", trustme.CA().issue_cert("localhost"))
    values = {**BROKER_KEYS.defaults(), "ssl.keystore.location": path}
    listeners = TlsListeners(LISTENERS, values, ManualClock(), Metrics())
    before = listeners.by_name["SSL"].current
    pem_file(Path(path), trustme.CA().issue_cert("localhost"))

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as faults:
        faults.setattr(os, "memfd_create", refuse, raising=False)
        listeners.renew(values)
    assert listeners.by_name["SSL"].current is before
    listeners.renew(values)
    assert listeners.by_name["SSL"].current is not before
