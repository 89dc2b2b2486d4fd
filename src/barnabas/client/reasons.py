"""What the operating system says about a connection, in a few words for a person."""

from __future__ import annotations

import socket
import ssl

from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig, KafkaError, NetworkException

_TLS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it has no version of TLS that is allowed here",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it has no version of TLS that is allowed here",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it asks for a certificate: see ssl.keystore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of ssl.keystore.location",
}
"""By OpenSSL's names."""


def reason(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return "unknown host"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in text:
        return "connection refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "connection reset"
    if isinstance(error, ssl.SSLError) and error.reason in _TLS:
        return _TLS[error.reason]
    return getattr(error, "strerror", None) or text or type(error).__name__


def unreachable(endpoint: Endpoint, error: OSError) -> KafkaError:
    """A certificate that cannot be trusted does not become so by trying again."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return InvalidConfig(
            f"the certificate of {endpoint} is not trusted ({error.verify_message}): see"
            " ssl.truststore.location and ssl.endpoint.identification.algorithm"
        )
    return NetworkException(f"cannot reach {endpoint} ({reason(error)})")
