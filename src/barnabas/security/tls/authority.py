"""Private certificate authority, and certificates that it issues, for clusters without an external one.

Keys are elliptic (P-256): made in a millisecond, and known to every client. A certificate never outlives that
of its authority. Key identifiers of both sides are in each certificate, for strict checks such as those of
Python 3.13.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barnabas.core.errors import InvalidConfig
from barnabas.security.tls.stores import KeyMaterial

_CLOCK_SKEW = dt.timedelta(hours=1)
"""Head start of validity, for machines whose clock is a little behind."""


def make_authority(name: str, now: dt.datetime, lifetime: dt.timedelta) -> KeyMaterial:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    certificate = (
        _begun(subject, subject, key, now, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _material(key, certificate)


def issue(
    authority: KeyMaterial, name: str, hosts: Iterable[str], now: dt.datetime, lifetime: dt.timedelta
) -> KeyMaterial:
    """A key and a certificate for a server with these names and addresses."""
    signing = serialization.load_pem_private_key(authority.key_pem, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    above = authority.certificate
    until = min(now + lifetime, above.not_valid_after_utc)
    identifier = above.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _begun(_named(name), above.subject, key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
        .sign(signing, hashes.SHA256())
    )
    return _material(key, certificate)


def hosts_of(certificate: x509.Certificate) -> set[str]:
    """Names and addresses of the certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(each.value) for each in names}


def is_issued_by(certificate: x509.Certificate, authority: KeyMaterial) -> bool:
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # noqa: BLE001 - ValueError, TypeError or InvalidSignature: no, in three ways
        return False
    return True


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not host.isascii():
            raise InvalidConfig(f"{host} cannot stand in a certificate: it is not ASCII") from None
        return x509.DNSName(host)


def _material(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyMaterial:
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyMaterial(pem, (certificate,))
