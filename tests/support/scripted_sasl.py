"""The broker's side of SASL in the script of a scripted broker."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.protocol.schema.message import Message
from barnabas.security.sasl.outcome import Authentication, AuthenticationRefused, Done
from barnabas.security.sasl.plain import PlainAuthentication, PlainUsers
from tests.support.scripted_broker import Answer, Script


class Sasl:
    """The broker's side, in a script; what was asked before the authentication was over is noted."""

    def __init__(
        self, begin: Callable[[], Authentication], mechanism: str = "PLAIN", lifetime_ms: int = 0
    ) -> None:
        self.handshakes = 0
        self.early: list[Message] = []
        self.is_under_way = True
        self.is_refused = False
        self._begin = begin
        self._mechanism = mechanism
        self._lifetime_ms = lifetime_ms
        self._authentication = begin()

    @property
    def script(self) -> Script:
        return {
            ApiKey.SASL_HANDSHAKE: self.handshake,
            ApiKey.SASL_AUTHENTICATE: self.authenticate,
            ApiKey.METADATA: self.metadata,
        }

    def handshake(self, request: SaslHandshakeRequest, version: int) -> Answer:
        assert version == 1
        self.handshakes += 1
        self.is_under_way = True
        self._authentication = self._begin()
        code = 0 if request.mechanism == self._mechanism else UnsupportedSaslMechanism.code
        return SaslHandshakeResponse(error_code=code, mechanisms=[self._mechanism])

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Answer:
        assert version == 2
        try:
            if self.is_refused:
                return SaslAuthenticateResponse(
                    error_code=SaslAuthenticationFailed.code, error_message="not any more"
                )
            outcome = self._authentication.step(bytes(request.auth_bytes))
        except AuthenticationRefused as error:
            return SaslAuthenticateResponse(
                error_code=SaslAuthenticationFailed.code, error_message=error.message
            )
        if isinstance(outcome, Done):
            self.is_under_way = False
        return SaslAuthenticateResponse(auth_bytes=outcome.token, session_lifetime_ms=self._lifetime_ms)

    def metadata(self, request: MetadataRequest, _: int) -> Answer:
        if self.is_under_way:
            self.early.append(request)
        return MetadataResponse(cluster_id="c")


def plain_users(lifetime_ms: int = 0) -> Sasl:
    users = PlainUsers({"alice": "s3cret"})
    return Sasl(lambda: PlainAuthentication(users), lifetime_ms=lifetime_ms)
