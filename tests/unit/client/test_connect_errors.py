"""Connection errors in words, and which of them a retry can mend."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from barnabas.client.core.connect_errors import reason, unreachable
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig, NetworkException


def tls_error(name: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "a long text of OpenSSL")
    error.reason = name
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "timed out"),
        (socket.gaierror(-2, "Name or service not known"), "unknown host"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1)"), "connection refused"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "connection reset"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), "connection reset"),
        (tls_error("WRONG_VERSION_NUMBER"), "it does not speak TLS"),
        (tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "it requires a client certificate"),
        (UnicodeError("label empty or too long"), "no valid host name"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "Network is unreachable"),
        (OSError("odd"), "odd"),
        (OSError(), "OSError"),
    ],
)
def test_an_error_has_a_few_words(error: OSError | UnicodeError, words: str) -> None:
    assert reason(error).startswith(words)
    found = unreachable(Endpoint("a", 1), error)
    assert isinstance(found, NetworkException)
    assert f"cannot reach a:1 ({words}" in found.message


def test_an_untrusted_certificate_is_not_retried() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    found = unreachable(Endpoint("a", 1), error)
    assert isinstance(found, InvalidConfig)
    assert not found.retriable
    assert "the certificate of a:1 is not trusted (self-signed certificate)" in found.message
