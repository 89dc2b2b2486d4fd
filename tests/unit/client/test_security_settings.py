"""Kafka's client settings for security: keys that are read or refused, and secrets that are never shown."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.client.security.settings import PLAINTEXT, SecurityProtocol, SecuritySettings
from barnabas.client.security.tls_context import TlsSettings, tls_context
from barnabas.core.errors import InvalidConfig

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def sasl(mechanism: str, jaas: str, **more: str) -> dict[str, str]:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return given | {name.replace("_", "."): value for name, value in more.items()}


def first_token(given: dict[str, str]) -> bytes:
    login = SecuritySettings.parse(given).secured().login
    assert login is not None
    return next(login.begin("host"))


def test_nothing_said_is_plaintext() -> None:
    settings = SecuritySettings.parse({"bootstrap.servers": "a:1", "linger.ms": "5"})
    assert settings.protocol is SecurityProtocol.PLAINTEXT
    assert settings.secured() == PLAINTEXT


def test_a_login_module_gives_user_and_password() -> None:
    jaas = f'{PLAIN_MODULE} required username="alice" password="s3cret";'
    assert first_token(sasl("PLAIN", jaas)) == b"\0alice\0s3cret"


def test_scram_logs_in_with_a_user_or_a_delegation_token() -> None:
    jaas = f'{SCRAM_MODULE} required username="alice" password="s3cret";'
    assert first_token(sasl("SCRAM-SHA-512", jaas)).startswith(b"n,,n=alice,r=")
    token = f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";'
    assert first_token(sasl("SCRAM-SHA-256", token)).endswith(b",tokenauth=true")


def test_a_token_is_read_again_for_each_authentication(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first.token.x\n")
    given = sasl("OAUTHBEARER", f'{OAUTH_MODULE} required extension_cluster="c1";')
    login = (
        SecuritySettings.parse({**given, "sasl.oauthbearer.token.endpoint.url": file.as_uri()})
        .secured()
        .login
    )
    assert login is not None
    assert next(login.begin("host")) == b"n,,\x01auth=Bearer first.token.x\x01cluster=c1\x01\x01"
    file.write_text("second.token.x")
    assert b"second.token.x" in next(login.begin("host"))
    file.unlink()
    with pytest.raises(InvalidConfig, match="cannot be read"):
        login.begin("host")


def test_a_token_may_be_in_the_login_configuration() -> None:
    login = (
        SecuritySettings.parse(sasl("OAUTHBEARER", f'{OAUTH_MODULE} required oauth.access.token="a.b.c";'))
        .secured()
        .login
    )
    assert login is not None
    assert next(login.begin("host")) == b"n,,\x01auth=Bearer a.b.c\x01\x01"


def test_a_program_may_hand_tokens_over() -> None:
    settings = SecuritySettings.parse({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"})
    login = settings.secured(token=lambda: "a.b.c").login
    assert login is not None
    assert next(login.begin("host")) == b"n,,\x01auth=Bearer a.b.c\x01\x01"


@pytest.mark.parametrize("url", ["https://idp.example/token", "file://elsewhere/token", "/etc/token", ""])
def test_no_token_is_fetched_from_elsewhere(url: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    settings = SecuritySettings.parse({**given, "sasl.oauthbearer.token.endpoint.url": url})
    with pytest.raises(InvalidConfig, match="must be a file: URL"):
        settings.secured()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"security.protocol": "SSLv3"}, "security.protocol is one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is one of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs sasl.jaas.config"),
        (sasl("PLAIN", f'{SCRAM_MODULE} required username="a" password="s3cret";'), "is PlainLoginModule"),
        (
            sasl(
                "PLAIN",
                'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://s3cret";',
            ),
            "is PlainLoginModule",
        ),
        (sasl("PLAIN", f'{PLAIN_MODULE} required username="a" password="s3cret"'), "semicolon"),
        ({"sasl.login.callback.handler.class": "com.example.s3cret"}, "names a class"),
        ({"sasl.client.callback.handler.class": "x"}, "names a class"),
        ({"sasl.login.class": "x"}, "names a class"),
        ({"ssl.engine.factory.class": "x"}, "names a class"),
        ({"security.providers": "x"}, "names a class"),
        ({"sasl.jaas.confg": "s3cret"}, "is not a setting"),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1"}, "TLSv1 is none of"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}, "https or empty"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "s3cret"}, "need each other"),
    ],
)
def test_an_invalid_setting_is_named_without_its_secret(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        SecuritySettings.parse(given)
    assert "s3cret" not in str(caught.value)


def test_a_class_that_kafka_names_by_itself_is_no_code_of_others() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    SecuritySettings.parse({**given, "sasl.login.callback.handler.class": handler})
    with pytest.raises(InvalidConfig, match="names a class"):
        SecuritySettings.parse({**given, "sasl.login.callback.handler.class": f"evil.{handler}"})


def test_a_user_without_a_password_is_said_when_it_is_used() -> None:
    settings = SecuritySettings.parse(sasl("PLAIN", f'{PLAIN_MODULE} required username="a";'))
    with pytest.raises(InvalidConfig, match="has no password"):
        settings.secured()


def test_secrets_are_references_until_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys").write_text('password=s3c"ret; evil="x\n')
    reference = f"${{file:{tmp_path}/keys:password}}"
    jaas = f'{PLAIN_MODULE} required username="${{env:KAFKA_USER}}" password="{reference}";'
    settings = SecuritySettings.parse(sasl("PLAIN", jaas))
    assert b"s3c" not in pickle.dumps(settings)
    with pytest.raises(InvalidConfig, match="KAFKA_USER"):
        settings.secured()
    monkeypatch.setenv("KAFKA_USER", "alice")
    login = settings.secured().login
    assert login is not None
    assert next(login.begin("host")) == b'\0alice\0s3c"ret; evil="x', "a value is a value, whatever is in it"
    assert "s3c" not in repr(settings) + repr(login)


def test_a_whole_login_configuration_may_be_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAAS", f'{PLAIN_MODULE} required username="a" password="s3cret";')
    assert first_token(sasl("PLAIN", "${env:JAAS}")) == b"\0a\0s3cret"


def test_a_repr_shows_no_password() -> None:
    jaas = f'{PLAIN_MODULE} required username="alice" password="s3cret";'
    passwords = {
        "ssl.key.password": "s3cret",
        "ssl.keystore.password": "s3cret",
        "ssl.truststore.password": "s3cret",
        "ssl.keystore.key": "s3cret",
        "ssl.keystore.certificate.chain": "public",
    }
    given = {**sasl("PLAIN", jaas), **passwords, "security.protocol": "SASL_SSL"}
    settings = SecuritySettings.parse(given)
    assert "s3cret" not in repr(settings)
    with pytest.raises(InvalidConfig) as caught:
        settings.secured()
    assert "s3cret" not in str(caught.value)


# -- stores ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("client")


def pem_of(certificate: trustme.LeafCert) -> tuple[bytes, bytes]:
    return certificate.private_key_pem.bytes(), b"".join(each.bytes() for each in certificate.cert_chain_pems)


def context(**given: str) -> ssl.SSLContext:
    return tls_context(
        TlsSettings.parse({f"ssl.{name.replace('_', '.')}": value for name, value in given.items()})
    )


def test_stores_are_pem_files_or_pem_text(
    tmp_path: Path, authority: trustme.CA, certificate: trustme.LeafCert
) -> None:
    key, chain = pem_of(certificate)
    trusted, shown, alone, apart = (
        tmp_path / name for name in ("ca.pem", "client.pem", "chain.pem", "key.pem")
    )
    trusted.write_bytes(authority.cert_pem.bytes())
    shown.write_bytes(key + chain)
    alone.write_bytes(chain)
    apart.write_bytes(key)
    for made in (
        context(truststore_location=str(trusted), keystore_location=str(shown)),
        context(
            truststore_certificates=trusted.read_text(),
            keystore_key=key.decode(),
            keystore_certificate_chain=chain.decode(),
        ),
        context(ca_location=str(trusted), certificate_location=str(alone), key_location=str(apart)),
    ):
        assert made.verify_mode is ssl.CERT_REQUIRED
        assert made.check_hostname
        assert made.cert_store_stats()["x509_ca"] == 1
    assert not context(endpoint_identification_algorithm="").check_hostname


def test_an_encrypted_key_opens_with_its_password(tmp_path: Path, certificate: trustme.LeafCert) -> None:
    key, chain = pem_of(certificate)
    loaded = serialization.load_pem_private_key(key, None)
    locked = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"s3cret"),
    )
    (tmp_path / "locked.pem").write_bytes(locked + chain)
    context(keystore_location=str(tmp_path / "locked.pem"), key_password="s3cret")
    with pytest.raises(InvalidConfig, match=r"ssl\.key\.password") as caught:
        context(keystore_location=str(tmp_path / "locked.pem"), key_password="wr0ng")
    assert "wr0ng" not in str(caught.value)
    assert not list(Path(tmp_path).glob("barnabas-*"))


def test_pkcs12_stores_are_read(tmp_path: Path, authority: trustme.CA, certificate: trustme.LeafCert) -> None:
    key, chain = pem_of(certificate)
    own = x509.load_pem_x509_certificate(chain)
    ca = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    lock = serialization.BestAvailableEncryption(b"s3cret")
    loaded = serialization.load_pem_private_key(key, None)
    shown, trusted = tmp_path / "client.p12", tmp_path / "trust.p12"
    shown.write_bytes(pkcs12.serialize_key_and_certificates(b"client", loaded, own, [ca], lock))  # type: ignore[arg-type]
    trusted.write_bytes(pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(ca, b"ca")], lock))
    made = context(
        truststore_location=str(trusted),
        truststore_password="s3cret",
        truststore_type="PKCS12",
        keystore_location=str(shown),
        keystore_password="s3cret",
    )
    assert made.cert_store_stats()["x509_ca"] == 1
    for wrong in ({"truststore_location": str(trusted)}, {"keystore_location": str(shown)}):
        with pytest.raises(InvalidConfig, match="password"):
            context(**wrong, truststore_password="no", keystore_password="no")


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(InvalidConfig, match=r"keytool -importkeystore -srckeystore .*trust\.jks .*PKCS12"):
        context(truststore_location=str(store))


@pytest.mark.parametrize("content", [b"", b"-----BEGIN CERTIFICATE-----\n", b"\xff\xff", b"\x30\x82"])
def test_a_store_that_holds_nothing_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").write_bytes(content)
    with pytest.raises(InvalidConfig, match=r"store(:| is neither| cannot be read)"):
        context(truststore_location=str(tmp_path / "store"))
    with pytest.raises(InvalidConfig, match=r"store(:| is neither| cannot be read)"):
        context(keystore_location=str(tmp_path / "store"))
    with pytest.raises(InvalidConfig, match="cannot be read: No such file"):
        context(truststore_location=str(tmp_path / "nowhere"))


def test_ciphers_have_their_registered_names() -> None:
    made = context(
        cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    )
    names = {each["name"] for each in made.get_ciphers() if not each["name"].startswith("TLS_")}
    assert names == {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"}
    with pytest.raises(InvalidConfig, match="cipher"):
        context(cipher_suites="TLS_NO_WITH_SUCH")
    assert context(enabled_protocols="TLSv1.3").minimum_version is ssl.TLSVersion.TLSv1_3
