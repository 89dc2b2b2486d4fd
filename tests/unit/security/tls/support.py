"""Settings of one TLS listener, and certificates of an authority that is made for the test."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.lookup import broker_key
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.security.tls.settings import TlsSettings


def tls_settings(given: dict[str, str], name: str = "SSL", protocol: str = "SSL") -> TlsSettings:
    values = BROKER_KEYS.defaults()
    values.update({key: broker_key(key).parse(text) for key, text in given.items()})
    return TlsSettings.of(values, ListenerEndpoint(name, Endpoint("localhost", 9093), protocol))


def pem_file(path: Path, certificate: trustme.LeafCert) -> str:
    certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
    return str(path)


def ca_file(path: Path, authority: trustme.CA) -> str:
    authority.cert_pem.write_to_path(str(path))
    return str(path)


def key_text(certificate: trustme.LeafCert, password: str | None = None) -> str:
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    encryption = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode())
    )
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return text.decode()


def chain_text(certificate: trustme.LeafCert) -> str:
    return b"".join(pem.bytes() for pem in certificate.cert_chain_pems).decode()
