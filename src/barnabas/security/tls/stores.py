"""Key stores and trust stores, in files or in the settings themselves.

The format of a file is detected by its first bytes, not by `ssl.keystore.type`. Java's tools have long
written PKCS12 under names that end in .jks, and Java reads them with either type. A real JKS file is rejected
with the command that converts it.

An error names the file and the fault, never the content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file
from barnabas.security.tls.settings import Store

STORE_BYTES_MAX = 16 << 20
"""Maximum size of a store."""

_JAVA_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_BEGIN = b"-----BEGIN "
_DER_SEQUENCE = 0x30
_DER_LONG_LENGTH = 0x80
_PEM_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL
)
_ESCAPED_NEWLINE = re.compile(r"\\[nr]")


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """The broker's key, and the chain of certificates from its own upwards."""

    key_pem: bytes
    chain: tuple[x509.Certificate, ...]

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @property
    def pem(self) -> bytes:
        return self.key_pem + b"".join(map(pem_of, self.chain))

    def __repr__(self) -> str:
        return f"KeyMaterial({self.certificate.subject.rfc4514_string()})"


def pem_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def read_keys(store: Store) -> KeyMaterial:
    """Key and certificates of a key store; INVALID_CONFIG names the fault."""
    if store.location is None:
        if store.key is None or store.certificates is None:
            raise InvalidConfig(
                "a TLS listener needs a certificate: set ssl.keystore.location to a PEM or PKCS12 file, or"
                " ssl.keystore.key and ssl.keystore.certificate.chain to PEM text"
            )
        return _keys_of_pem(store.key + "\n" + store.certificates, store.key_password, store.prefix)
    data = _content(store, store.location)
    if _is_pem(data):
        password = store.key_password if store.key_password is not None else store.password
        return _keys_of_pem(data.decode("latin-1"), password, str(store.location))
    found = _load_pkcs12(store, data)
    if found.key is None or found.cert is None:
        raise InvalidConfig(f"{store.location}: it has no private key with its certificate")
    chain = (found.cert.certificate, *(each.certificate for each in found.additional_certs))
    return KeyMaterial(_pem_of_key(found.key), _ordered(chain))


def read_trusted(store: Store) -> tuple[x509.Certificate, ...]:
    """Certificates of a trust store; INVALID_CONFIG names the fault."""
    if store.location is None:
        return _certificates(store.certificates or "", f"{store.prefix}.certificates")
    data = _content(store, store.location)
    if _is_pem(data):
        return _certificates(data.decode("latin-1"), str(store.location))
    found = _load_pkcs12(store, data)
    trusted = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        trusted.append(found.cert.certificate)
    if not trusted:
        raise InvalidConfig(f"{store.location}: there is no certificate in it")
    return tuple(trusted)


def _content(store: Store, location: Path) -> bytes:
    try:
        data = read_regular_file(location, STORE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{store.prefix}.location: {location} cannot be read: {error.strerror}") from None
    if data.startswith(_JAVA_MAGICS):
        raise InvalidConfig(
            f"{store.prefix}.location: {location} is in Java's own format (JKS), which is not read here;"
            f" convert it: keytool -importkeystore -srckeystore {location}"
            f" -destkeystore {location.with_suffix('.p12')} -deststoretype PKCS12"
        )
    is_pem = _is_pem(data)
    if not data or len(data) > STORE_BYTES_MAX or (store.type == "PEM" and not is_pem):
        raise InvalidConfig(f"{store.prefix}.location: {location} is neither a PEM nor a PKCS12 file")
    return data


def _is_pem(data: bytes) -> bool:
    """PEM may begin with any text: OpenSSL writes attributes, and bundles of authorities have comments."""
    is_der = len(data) > 1 and data[0] == _DER_SEQUENCE and data[1] >= _DER_LONG_LENGTH
    return not is_der and any(line.startswith(_PEM_BEGIN) for line in data.splitlines())


def _load_pkcs12(store: Store, data: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    password = None if store.password is None else store.password.encode()
    try:
        return pkcs12.load_pkcs12(data, password)
    except (ValueError, UnsupportedAlgorithm):
        raise InvalidConfig(
            f"{store.prefix}.location: {store.location} cannot be read as PKCS12: the password"
            f" ({store.prefix}.password) is wrong, or the file is damaged"
        ) from None


def _keys_of_pem(text: str, password: str | None, where: str) -> KeyMaterial:
    keys = [block for label, block in _pem_blocks(text) if label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise InvalidConfig(f"{where}: there must be one private key in it, there are {len(keys)}")
    is_encrypted = b"ENCRYPTED" in keys[0]
    if is_encrypted and password is None:
        raise InvalidConfig(f"{where}: the private key is encrypted; set ssl.key.password")
    try:
        key = serialization.load_pem_private_key(
            keys[0], password.encode() if is_encrypted and password is not None else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        reason = "the password (ssl.key.password) is wrong, or it is" if is_encrypted else "it is"
        raise InvalidConfig(f"{where}: the private key cannot be read: {reason} damaged") from None
    return KeyMaterial(_pem_of_key(key), _certificates(text, where))


def _pem_of_key(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificates(text: str, where: str) -> tuple[x509.Certificate, ...]:
    blocks = [block for label, block in _pem_blocks(text) if label.endswith("CERTIFICATE")]
    if not blocks:
        raise InvalidConfig(f"{where}: there is no certificate in it")
    try:
        return tuple(map(x509.load_pem_x509_certificate, blocks))
    except ValueError:
        raise InvalidConfig(f"{where}: a certificate in it is damaged") from None


def _pem_blocks(text: str) -> list[tuple[str, bytes]]:
    """Blocks by label. In a properties file their lines may be joined by spaces, or by a literal \\n."""
    blocks = []
    for found in _PEM_BLOCK.finditer(_ESCAPED_NEWLINE.sub("\n", text)):
        label, body = found["label"], found["body"]
        if ":" not in body:  # the headers of an old kind of encryption are significant lines
            body = "\n" + "\n".join(body.split()) + "\n"
        blocks.append((label, f"-----BEGIN {label}-----{body}-----END {label}-----\n".encode("latin-1")))
    return blocks


def _ordered(found: tuple[x509.Certificate, ...]) -> tuple[x509.Certificate, ...]:
    """The chain from the first certificate upwards; a PKCS12 file holds the others in any order."""
    chain, others = [found[0]], list(found[1:])
    while others:
        above = next((each for each in others if each.subject == chain[-1].issuer), None)
        if above is None:
            break
        others.remove(above)
        chain.append(above)
    return tuple(chain)
