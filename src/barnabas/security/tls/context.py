"""The `ssl.SSLContext` of a listener, and the principal of a client certificate."""

from __future__ import annotations

import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cryptography import x509

from barnabas.core.errors import InvalidConfig
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.tls.ciphers import TLS13_SUITES, suites_of
from barnabas.security.tls.distinguished_name import subject_of
from barnabas.security.tls.principal_mapping import PrincipalMapping
from barnabas.security.tls.settings import TlsSettings
from barnabas.security.tls.stores import KeyMaterial, pem_of, read_keys, read_trusted

logger = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class ListenerContext:
    """TLS context of a listener, from one state of its settings and files."""

    settings: TlsSettings
    context: ssl.SSLContext
    certificate: x509.Certificate
    mapping: PrincipalMapping

    @property
    def expires_ms(self) -> float:
        """Expiry of the broker's certificate, as wall-clock time."""
        return self.certificate.not_valid_after_utc.timestamp() * 1_000

    def principal(self, certificate_der: bytes | None) -> KafkaPrincipal | None:
        """Principal of this certificate; None if no rule matches its name."""
        if certificate_der is None:
            return ANONYMOUS
        user = self.mapping.user(subject_of(certificate_der))
        return None if user is None else KafkaPrincipal.user(user)


def make_context(settings: TlsSettings) -> ListenerContext:
    """Read the stores and make the context; INVALID_CONFIG names the fault."""
    try:
        keys = read_keys(settings.keys)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        _limit_protocols(context, settings)
        load_keys(context, keys)
        _ask_for_certificates(context, settings)
        mapping = PrincipalMapping.parse(settings.mapping_rules)
    except InvalidConfig as error:
        raise InvalidConfig(f"the listener {settings.listener_name}: {error.message}") from None
    return ListenerContext(settings, context, keys.certificate, mapping)


def _limit_protocols(context: ssl.SSLContext, settings: TlsSettings) -> None:
    wanted = {_VERSIONS[name] for name in settings.protocols}
    if settings.cipher_suites:
        suites = suites_of(settings.cipher_suites)
        if suites.older:
            try:
                context.set_ciphers(suites.older)
            except ssl.SSLError:
                raise InvalidConfig(
                    f"ssl.cipher.suites: {', '.join(settings.cipher_suites)}: no suite of the list is known"
                ) from None
        else:
            wanted.discard(ssl.TLSVersion.TLSv1_2)
        if not suites.has_tls13:
            wanted.discard(ssl.TLSVersion.TLSv1_3)
        elif ssl.TLSVersion.TLSv1_3 in wanted and not TLS13_SUITES.issubset(settings.cipher_suites):
            logger.warning(
                "the listener %s offers all suites of TLS 1.3: ssl.cipher.suites chooses older ones only",
                settings.listener_name,
            )
    if not wanted:
        raise InvalidConfig("ssl.enabled.protocols and ssl.cipher.suites leave no protocol to agree on")
    context.minimum_version = min(wanted)
    context.maximum_version = max(wanted)


def load_keys(context: ssl.SSLContext, keys: KeyMaterial) -> None:
    with _as_file(keys.pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            reason = error.reason or "it is refused by the TLS library"
            raise InvalidConfig(f"the key and the certificate cannot be used: {reason}") from None


def _ask_for_certificates(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.trusted.is_given:
        context.load_verify_locations(cadata=b"".join(map(pem_of, read_trusted(settings.trusted))).decode())
    elif settings.client_auth != "none":
        raise InvalidConfig(
            f"ssl.client.auth is {settings.client_auth}, which needs certificates to check clients against;"
            " set ssl.truststore.location or ssl.truststore.certificates"
        )


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Path for the TLS library, which reads keys from files only: in memory, or private to this process."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
