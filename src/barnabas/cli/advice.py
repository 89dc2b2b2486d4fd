"""What is probably wrong when no broker can be talked to: none is there, or the settings of TLS and SASL do
not match those of its listener. Who is refused by the network, or not found, has met no broker; who is cut
off has met one that speaks another way."""

from __future__ import annotations

from barnabas.client.security_settings import SecurityProtocol

IS_ONE_RUNNING = "is a broker running? start one with 'barnabas start'"

_CUT_OFF = ("connection reset", "closed the connection", "does not speak TLS")
_NO_LOGIN = "asks for no login by SASL"


def advice(reason: str, protocol: SecurityProtocol) -> str:
    """A question or a hint, to stand after the reason."""
    if _NO_LOGIN in reason:
        return f"security.protocol is {'SSL' if protocol.is_tls else 'PLAINTEXT'} there, not {protocol.name}"
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
    """For who is cut off with the first request, twice."""
    wanted = "SASL_SSL" if protocol.is_tls else "SASL_PLAINTEXT"
    return (
        f"a listener that asks for a login does that; if it is one, set security.protocol={wanted},"
        " sasl.mechanism and sasl.jaas.config in a file for --command-config"
    )
