"""Key and trust stores: PEM and PKCS12, in files and in the settings; errors name the fault."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.unit.security.tls.support import ca_file, chain_text, key_text, pem_file, tls_settings

from barnabas.core.errors import InvalidConfig
from barnabas.security.tls.stores import KeyMaterial, read_keys, read_trusted

PASSWORD = "a secret that must not be seen"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def issued(authority: trustme.CA) -> trustme.LeafCert:
    return authority.create_child_ca().issue_cert("localhost", common_name="broker")


def read(given: dict[str, str]) -> KeyMaterial:
    return read_keys(tls_settings(given).keys)


def leaf(issued: trustme.LeafCert) -> x509.Certificate:
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())


def pkcs12_file(path: Path, issued: trustme.LeafCert, password: str | None) -> str:
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate, *others = map(x509.load_pem_x509_certificate, (p.bytes() for p in issued.cert_chain_pems))
    encryption = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password.encode())
    )
    data = pkcs12.serialize_key_and_certificates(b"broker", key, certificate, others, encryption)  # type: ignore[arg-type]
    path.write_bytes(data)
    return str(path)


def test_a_pem_file_holds_the_key_and_the_chain(tmp_path: Path, issued: trustme.LeafCert) -> None:
    found = read(
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": pem_file(tmp_path / "broker.pem", issued)}
    )
    assert found.certificate == leaf(issued)
    assert len(found.chain) == len(issued.cert_chain_pems) == 2


def test_a_key_may_be_encrypted(tmp_path: Path, issued: trustme.LeafCert) -> None:
    path = tmp_path / "broker.pem"
    path.write_text(key_text(issued, PASSWORD) + chain_text(issued))
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    assert read(given | {"ssl.key.password": PASSWORD}).certificate == leaf(issued)
    with pytest.raises(InvalidConfig, match=r"set ssl\.key\.password"):
        read(given)
    with pytest.raises(InvalidConfig, match=r"password .ssl\.key\.password. is wrong"):
        read(given | {"ssl.key.password": "another"})


@pytest.mark.parametrize("joint", ["\n", " ", "\\n"])
def test_pem_text_may_stand_in_the_settings(issued: trustme.LeafCert, joint: str) -> None:
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key_text(issued, PASSWORD).replace("\n", joint),
        "ssl.keystore.certificate.chain": chain_text(issued).replace("\n", joint),
        "ssl.key.password": PASSWORD,
    }
    found = read(given)
    assert found.certificate == leaf(issued)
    assert len(found.chain) == 2
    assert PASSWORD not in repr(tls_settings(given))
    assert "PRIVATE" not in repr(found) + repr(tls_settings(given))


@pytest.mark.parametrize("store_type", ["PKCS12", "JKS"])
def test_a_pkcs12_file_is_known_by_its_content(
    tmp_path: Path, issued: trustme.LeafCert, store_type: str
) -> None:
    """Java's tools write PKCS12 into files called .jks, and `ssl.keystore.type` is JKS unless given."""
    path = pkcs12_file(tmp_path / "kafka.keystore.jks", issued, PASSWORD)
    given = {"ssl.keystore.type": store_type, "ssl.keystore.location": path}
    found = read(given | {"ssl.keystore.password": PASSWORD})
    assert found.certificate == leaf(issued)
    assert len(found.chain) == 2
    with pytest.raises(InvalidConfig, match=r"kafka\.keystore\.jks.*ssl\.keystore\.password") as refused:
        read(given | {"ssl.keystore.password": PASSWORD + "?"})
    assert PASSWORD not in refused.value.message


def test_a_jks_file_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "old.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    with pytest.raises(
        InvalidConfig, match=r"keytool -importkeystore -srckeystore \S+old.jks -destkeystore \S+old.p12"
    ):
        read({"ssl.keystore.location": str(path)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"", "neither a PEM nor a PKCS12"),
        (b"\x30\x03\x02\x01\x03", "cannot be read as PKCS12"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "one private key"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "private key cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "broker.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=reason):
        read({"ssl.keystore.location": str(path)})


def test_a_listener_without_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"set ssl\.keystore\.location"):
        read({})


def test_a_trust_store_is_certificates(tmp_path: Path, authority: trustme.CA) -> None:
    path = ca_file(tmp_path / "ca.pem", authority)
    text = Path(path).read_text()
    in_file = read_trusted(tls_settings({"ssl.truststore.location": path}).trusted)
    in_settings = read_trusted(tls_settings({"ssl.truststore.certificates": text}).trusted)
    assert in_file == in_settings == (x509.load_pem_x509_certificate(text.encode()),)


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is part of Java")
def test_text_may_stand_before_a_certificate(tmp_path: Path, authority: trustme.CA) -> None:
    """OpenSSL and bundles of authorities write it; `0` begins a PKCS12 file too."""
    path = tmp_path / "ca.pem"
    for text in (b"\n# Issuer: CN=x\n", b"Bag Attributes\n    friendlyName: ca\n", b"0 of these\n"):
        path.write_bytes(text + authority.cert_pem.bytes())
        assert len(read_trusted(tls_settings({"ssl.truststore.location": str(path)}).trusted)) == 1


def test_text_may_stand_before_a_key(tmp_path: Path, issued: trustme.LeafCert) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(b"Bag Attributes\n" + issued.private_key_and_cert_chain_pem.bytes())
    assert read({"ssl.keystore.location": str(path)}).certificate == leaf(issued)


def test_what_keytool_writes_is_read(tmp_path: Path, authority: trustme.CA) -> None:
    def keytool(*arguments: str) -> None:
        subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)

    keys, trusted = tmp_path / "kafka.keystore.jks", tmp_path / "kafka.truststore.jks"
    keytool(
        "-genkeypair", "-keystore", str(keys), "-storepass", "changeit", "-alias", "localhost",
        "-keyalg", "EC", "-dname", "CN=broker,OU=dev",
    )  # fmt: skip
    keytool(
        "-importcert", "-noprompt", "-keystore", str(trusted), "-storepass", "changeit", "-alias", "root",
        "-file", ca_file(tmp_path / "ca.pem", authority),
    )  # fmt: skip
    found = read({"ssl.keystore.location": str(keys), "ssl.keystore.password": "changeit"})
    assert found.certificate.subject.rfc4514_string() == "CN=broker,OU=dev"
    (root,) = read_trusted(
        tls_settings({"ssl.truststore.location": str(trusted), "ssl.truststore.password": "changeit"}).trusted
    )
    assert root == x509.load_pem_x509_certificate(authority.cert_pem.bytes())


@pytest.mark.parametrize("kind", ["keystore", "truststore"])
def test_a_pipe_or_a_device_is_no_store(tmp_path: Path, kind: str) -> None:
    """A pipe has no writer: a read would wait forever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for location in (pipe, Path("/dev/zero"), tmp_path):
        settings = tls_settings({f"ssl.{kind}.location": str(location)})
        with pytest.raises(InvalidConfig, match="not a regular file"):
            read_keys(settings.keys) if kind == "keystore" else read_trusted(settings.trusted)
