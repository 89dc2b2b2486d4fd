"""Hints for connection failures: no broker, or security settings that do not match the listener.

A refused connection or an unknown host means that no broker was reached. A connection that is cut off has
reached a listener with another security protocol.
"""

from __future__ import annotations

from barnabas.client.security.settings import SecurityProtocol

IS_ONE_RUNNING = "is a broker running? start one with 'barnabas start'"

HANGS = "something listens there and does not answer: is the broker stopped, or is it another service?"

_UNANSWERED = "did not answer ApiVersions"
_CUT_OFF = ("connection reset", "closed the connection", "does not speak TLS")
_WITHOUT_SASL = "has a listener without SASL"


def advice(reason: str, protocol: SecurityProtocol) -> str:
    """Hint that follows the reason of a failed connection."""
    if _WITHOUT_SASL in reason:
        return f"security.protocol is {'SSL' if protocol.is_tls else 'PLAINTEXT'} there, not {protocol.name}"
    if _UNANSWERED in reason:
        return HANGS
    if not any(each in reason for each in _CUT_OFF):
        return IS_ONE_RUNNING
    if protocol.is_tls:
        plain = protocol.name.replace("SSL", "PLAINTEXT").removeprefix("PLAINTEXT_")
        return f"a listener without TLS does that; if it is one, security.protocol is {plain}"
    secured = protocol.name.replace("PLAINTEXT", "SSL")
    return (
        f"a listener with TLS does that; if it is one, set security.protocol={secured} and"
        " ssl.truststore.location in a file for --command-config"
    )


def login_is_missing(protocol: SecurityProtocol) -> str:
    """Hint for a connection that is cut off with its first request, twice."""
    wanted = "SASL_SSL" if protocol.is_tls else "SASL_PLAINTEXT"
    return (
        f"a listener that asks for a login does that; if it is one, set security.protocol={wanted},"
        " sasl.mechanism and sasl.jaas.config in a file for --command-config"
    )
