"""Connection errors in words: operating system and TLS errors, shortened for messages."""

from __future__ import annotations

import socket
import ssl

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig, KafkaError, NetworkException

_TLS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it has no TLS version in common with this client",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no TLS version in common with this client",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a client certificate: set ssl.keystore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of ssl.keystore.location",
}
"""By the names of OpenSSL."""


def reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "unknown host" if isinstance(error, socket.gaierror) else "no valid host name"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in text:
        return "connection refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "connection reset"
    if isinstance(error, ssl.SSLError) and error.reason in _TLS:
        return _TLS[error.reason]
    return getattr(error, "strerror", None) or text or type(error).__name__


def unreachable(endpoint: Endpoint, error: OSError | UnicodeError) -> KafkaError:
    """Error for a failed connect. An untrusted certificate is not retriable: it stays untrusted."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return InvalidConfig(
            f"the certificate of {endpoint} is not trusted ({error.verify_message}): check"
            " ssl.truststore.location and ssl.endpoint.identification.algorithm"
        )
    return NetworkException(f"cannot reach {endpoint} ({reason(error)})")
