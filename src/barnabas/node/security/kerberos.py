"""Kerberos for GSSAPI: the broker's key, from a keytab, and the contexts that it accepts.

Only this module calls the system's Kerberos library, through the `gssapi` package. The library reads files
and writes the replay cache, so none of these calls belongs on the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import gssapi

from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.security.sasl.gssapi import refused
from barnabas.security.sasl.outcome import AuthenticationRefused, Reason

logger = logging.getLogger(__name__)


class Acceptor:
    """Accepts contexts with a key of the keytab; INVALID_CONFIG if there is none. Blocks."""

    def __init__(self, options: Mapping[str, str], service_name: str | None, clock: Clock) -> None:
        """`options` are those of Krb5LoginModule; without a principal, any key of the service is accepted."""
        self._limited_log = RateLimitedLogger(logger, clock)
        keytab, principal = options.get("keyTab"), options.get("principal")
        if not keytab:
            raise InvalidConfig("GSSAPI needs the broker's key: Krb5LoginModule with useKeyTab and keyTab")
        if not Path(keytab).is_file():
            raise InvalidConfig(f"keyTab of Krb5LoginModule: {keytab} is not a file")
        if principal:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
        elif service_name:
            name = gssapi.Name(service_name, gssapi.NameType.hostbased_service)
        else:
            raise InvalidConfig("GSSAPI needs principal of Krb5LoginModule, or sasl.kerberos.service.name")
        try:
            self._credentials = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos], store={"keytab": keytab}
            )
            own = str(self._credentials.name.canonicalize(gssapi.MechType.kerberos))
        except gssapi.exceptions.GSSError as error:
            raise InvalidConfig(f"no key for {name} in {keytab}: {error}") from None
        self.realm = own.rpartition("@")[2]

    def context(self) -> Context:
        return Context(gssapi.SecurityContext(creds=self._credentials, usage="accept"), self._limited_log)


class Context:
    """A `security.sasl.gssapi.AcceptorContext`."""

    def __init__(self, context: gssapi.SecurityContext, limited_log: RateLimitedLogger) -> None:
        self._context = context
        self._limited_log = limited_log

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token) or b""
        except gssapi.exceptions.GSSError as error:
            raise self._refused(error) from None

    def wrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.wrap(message, encrypt=False).message)
        except gssapi.exceptions.GSSError as error:
            raise self._refused(error) from None

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except gssapi.exceptions.GSSError as error:
            raise self._refused(error) from None

    def _refused(self, error: Exception) -> AuthenticationRefused:
        self._limited_log.warn("kerberos", "Kerberos token of a client rejected: %s", error)
        return refused(Reason.BAD_CREDENTIALS)
