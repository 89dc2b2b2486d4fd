"""The client's side of TLS: whom to trust, what to show, and how.

Stores are PEM or PKCS#12, told apart by what is in them: Java reads either under the name of the other too.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.core.errors import InvalidConfig
from barnabas.security.secret_references import resolve

TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A file, or PEM text in its place."""

    location: str | None = None
    text: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def is_given(self) -> bool:
        return self.location is not None or self.text is not None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    trust: StoreSettings = StoreSettings()
    key: StoreSettings = StoreSettings()
    key_password: str | None = field(default=None, repr=False)
    separate_key: str | None = None
    """The file of the private key, where it is not with its certificate."""
    versions: tuple[str, ...] = tuple(TLS_VERSIONS)
    ciphers: tuple[str, ...] = ()
    checks_host: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> TlsSettings:
        versions = _words(given.get("ssl.enabled.protocols", "")) or tuple(TLS_VERSIONS)
        unknown = [each for each in versions if each not in TLS_VERSIONS]
        if unknown:
            raise InvalidConfig(f"ssl.enabled.protocols has {', '.join(TLS_VERSIONS)} here, not {unknown[0]}")
        algorithm = given.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
        if algorithm not in {"https", ""}:
            raise InvalidConfig(f"ssl.endpoint.identification.algorithm is https or empty, not {algorithm!r}")
        chain = (given.get("ssl.keystore.key"), given.get("ssl.keystore.certificate.chain"))
        if (chain[0] is None) != (chain[1] is None):
            raise InvalidConfig("ssl.keystore.key and ssl.keystore.certificate.chain belong together")
        return cls(
            trust=StoreSettings(
                given.get("ssl.ca.location", given.get("ssl.truststore.location")),
                given.get("ssl.truststore.certificates"),
                given.get("ssl.truststore.password"),
            ),
            key=StoreSettings(
                given.get("ssl.certificate.location", given.get("ssl.keystore.location")),
                None if chain[0] is None or chain[1] is None else f"{chain[0]}\n{chain[1]}",
                given.get("ssl.keystore.password"),
            ),
            key_password=given.get("ssl.key.password"),
            separate_key=given.get("ssl.key.location"),
            versions=versions,
            ciphers=_words(given.get("ssl.cipher.suites", "")),
            checks_host=algorithm == "https",
        )


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Follows references and reads the stores; INVALID_CONFIG names what cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    versions = [TLS_VERSIONS[each] for each in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    try:
        if settings.ciphers:
            context.set_ciphers(":".join(map(_openssl_name, settings.ciphers)))
    except ssl.SSLError:
        raise InvalidConfig("ssl.cipher.suites: the TLS library has none of them") from None
    _trust(context, settings.trust)
    if settings.key.is_given:
        _show(context, settings)
    return context


def _trust(context: ssl.SSLContext, store: StoreSettings) -> None:
    if not store.is_given:
        context.load_default_certs()
        return
    what = "ssl.truststore.certificates" if store.location is None else store.location
    content = _content(store)
    if not _is_pem(content, what):
        content = _opened(content, store.password, what).trusted
    try:
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise InvalidConfig(f"{what} holds no certificate that can be read") from None


def _show(context: ssl.SSLContext, settings: TlsSettings) -> None:
    store = settings.key
    what = "ssl.keystore.key" if store.location is None else store.location
    content, password = _content(store), settings.key_password
    if not _is_pem(content, what):
        content, password = _opened(content, store.password, what).key_and_chain, None
    elif settings.separate_key is not None:
        content += b"\n" + _read(settings.separate_key)
    # The library takes a key from a file alone. This one is its owner's, and gone before anybody connects.
    descriptor, path = tempfile.mkstemp(prefix="barnabas-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        context.load_cert_chain(path, password=lambda: _value(password) or "")
    except (ssl.SSLError, ValueError):
        raise InvalidConfig(
            f"{what} holds no certificate with its key that opens with ssl.key.password"
        ) from None
    finally:
        Path(path).unlink()


class _Opened(NamedTuple):
    trusted: bytes
    key_and_chain: bytes


def _opened(content: bytes, password: str | None, what: str) -> _Opened:
    """A PKCS#12 store as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - an extra
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise InvalidConfig(f"{what} is a PKCS#12 store: they need pip install barnabas[security]") from None
    secret = _value(password)
    try:
        store = pkcs12.load_pkcs12(content, None if secret is None else secret.encode())
    except ValueError:
        raise InvalidConfig(f"{what} is no PKCS#12 store that opens with its password") from None
    own = [] if store.cert is None else [store.cert]
    others = [each.certificate.public_bytes(Encoding.PEM) for each in store.additional_certs]
    chain = b"".join([*(each.certificate.public_bytes(Encoding.PEM) for each in own), *others])
    key = b""
    if store.key is not None:
        key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _Opened(chain, key + chain)


def _is_pem(content: bytes, what: str) -> bool:
    if content.startswith(b"\xfe\xed\xfe\xed"):
        raise InvalidConfig(
            f"{what} is a JKS store; convert it: keytool -importkeystore -srckeystore {what}"
            f" -destkeystore {what}.p12 -deststoretype PKCS12"
        )
    return not content.startswith(b"\x30")


def _content(store: StoreSettings) -> bytes:
    return _read(store.location) if store.location is not None else (_value(store.text) or "").encode()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from None


def _value(text: str | None) -> str | None:
    if text is None:
        return None
    value: str = resolve(text)
    return value


def _openssl_name(suite: str) -> str:
    """Java has the registered names: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if cipher.startswith("CHACHA20"):
        cipher = "CHACHA20-POLY1305"
    cipher = cipher.replace("AES_", "AES").replace("_", "-")
    return f"{exchange.replace('_', '-')}-{cipher}"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
