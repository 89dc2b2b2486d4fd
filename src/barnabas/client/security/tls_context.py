"""Client side of TLS: trusted authorities, client certificate, protocol versions and ciphers."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file
from barnabas.core.optional_dependencies import install_command
from barnabas.security.identity.secret_references import resolve
from barnabas.security.tls.ciphers import suites_of
from barnabas.security.tls.settings import Store

TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
PEM_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class TlsSettings:
    trusted: Store
    keys: Store
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    checks_host: bool
    separate_key: Path | None = None
    """File of the private key, where it is not in the file of its certificate."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> TlsSettings:
        versions = _words(given.get("ssl.enabled.protocols", "")) or tuple(TLS_VERSIONS)
        unknown = [each for each in versions if each not in TLS_VERSIONS]
        if unknown:
            raise InvalidConfig(f"ssl.enabled.protocols: {unknown[0]} is none of {', '.join(TLS_VERSIONS)}")
        algorithm = given.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if algorithm not in {"https", ""}:
            raise InvalidConfig(f"ssl.endpoint.identification.algorithm is https or empty, not {algorithm!r}")
        if ("ssl.keystore.key" in given) != ("ssl.keystore.certificate.chain" in given):
            raise InvalidConfig("ssl.keystore.key and ssl.keystore.certificate.chain need each other")
        return cls(
            trusted=Store(
                "ssl.truststore",
                given.get("ssl.truststore.type", "JKS").upper(),
                _path(given.get("ssl.ca.location", given.get("ssl.truststore.location"))),
                given.get("ssl.truststore.password"),
                given.get("ssl.truststore.certificates"),
            ),
            keys=Store(
                "ssl.keystore",
                given.get("ssl.keystore.type", "JKS").upper(),
                _path(given.get("ssl.certificate.location", given.get("ssl.keystore.location"))),
                given.get("ssl.keystore.password"),
                given.get("ssl.keystore.certificate.chain"),
                given.get("ssl.keystore.key"),
                given.get("ssl.key.password"),
            ),
            versions=versions,
            ciphers=_words(given.get("ssl.cipher.suites", "")),
            checks_host=algorithm == "https",
            separate_key=_path(given.get("ssl.key.location")),
        )


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """TLS context from these settings. Follows references and reads the stores; INVALID_CONFIG names the
    problem.
    """
    try:
        from barnabas.security.tls.context import load_keys  # noqa: PLC0415 - an optional dependency
        from barnabas.security.tls.stores import pem_of, read_keys, read_trusted  # noqa: PLC0415
    except ImportError as error:
        raise InvalidConfig(
            f"TLS needs {error.name}; install it with {install_command('security')}"
        ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    versions = [TLS_VERSIONS[each] for each in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if older := suites_of(settings.ciphers).older:
        try:
            context.set_ciphers(older)
        except ssl.SSLError:
            raise InvalidConfig("ssl.cipher.suites: the TLS library supports none of them") from None
    if settings.trusted.is_given:
        trusted = read_trusted(_resolved(settings.trusted))
        context.load_verify_locations(cadata=b"".join(map(pem_of, trusted)).decode())
    else:
        context.load_default_certs()
    if settings.keys.is_given:
        load_keys(context, read_keys(_resolved(_joined(settings.keys, settings.separate_key))))
    return context


def _joined(store: Store, separate_key: Path | None) -> Store:
    if separate_key is None or store.location is None:
        return store
    return replace(store, location=None, key=_read(separate_key), certificates=_read(store.location))


def _resolved(store: Store) -> Store:
    return replace(
        store,
        password=resolve(store.password),
        certificates=resolve(store.certificates),
        key=resolve(store.key),
        key_password=resolve(store.key_password),
    )


def _read(path: Path) -> str:
    try:
        return read_regular_file(path, PEM_BYTES_MAX).decode("latin-1")
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from None


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
