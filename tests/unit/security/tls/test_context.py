"""From the settings of a listener to its context."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme
from tests.unit.security.tls.support import ca_file, pem_file, tls_settings

from barnabas.core.errors import InvalidConfig
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal
from barnabas.security.tls.ciphers import suites_of
from barnabas.security.tls.context import make_context


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def given(tmp_path: Path, authority: trustme.CA) -> dict[str, str]:
    return {
        "ssl.keystore.location": pem_file(tmp_path / "broker.pem", authority.issue_cert("localhost")),
        "ssl.truststore.location": ca_file(tmp_path / "ca.pem", authority),
    }


@pytest.mark.parametrize(
    ("wanted", "mode"),
    [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)],
)
def test_client_auth(given: dict[str, str], wanted: str, mode: ssl.VerifyMode) -> None:
    assert make_context(tls_settings(given | {"ssl.client.auth": wanted})).context.verify_mode is mode


def test_only_its_own_key_asks_the_clients_of_a_sasl_listener_for_certificates(given: dict[str, str]) -> None:
    shared = given | {"ssl.client.auth": "required"}
    own = shared | {"listener.name.inside.ssl.client.auth": "requested"}
    assert tls_settings(shared, "INSIDE", "SASL_SSL").client_auth == "none"
    assert tls_settings(own, "INSIDE", "SASL_SSL").client_auth == "requested"
    assert tls_settings(own, "INSIDE", "SSL").client_auth == "requested"
    assert tls_settings(own, "OUTSIDE", "SSL").client_auth == "required"


def test_clients_are_checked_against_something(given: dict[str, str]) -> None:
    del given["ssl.truststore.location"]
    with pytest.raises(InvalidConfig, match=r"listener SSL: ssl\.client\.auth is required, .*truststore"):
        make_context(tls_settings(given | {"ssl.client.auth": "required"}))


def test_no_client_renegotiates(given: dict[str, str]) -> None:
    assert make_context(tls_settings(given)).context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("protocols", "suites", "least", "most"),
    [
        ("TLSv1.2,TLSv1.3", "", "TLSv1_2", "TLSv1_3"),
        ("TLSv1.2", "", "TLSv1_2", "TLSv1_2"),
        ("TLSv1.3", "", "TLSv1_3", "TLSv1_3"),
        ("TLSv1.2,TLSv1.3", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLSv1_2", "TLSv1_2"),
        ("TLSv1.2,TLSv1.3", "TLS_AES_256_GCM_SHA384", "TLSv1_3", "TLSv1_3"),
    ],
)
def test_protocols_and_suites(
    given: dict[str, str], protocols: str, suites: str, least: str, most: str
) -> None:
    wanted = {"ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites}
    context = make_context(tls_settings(given | wanted)).context
    assert context.minimum_version is ssl.TLSVersion[least]
    assert context.maximum_version is ssl.TLSVersion[most]
    if suites.startswith("TLS_ECDHE"):
        older = {each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"}
        assert older == {"ECDHE-RSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize(
    ("protocols", "suites", "reason"),
    [
        ("TLSv1.2", "TLS_AES_256_GCM_SHA384", "no protocol to agree on"),
        ("TLSv1.2", "TLS_NO_WITH_SUCH_CIPHER", "no suite of the list is known"),
    ],
)
def test_what_leaves_nothing_to_agree_on_is_refused(
    given: dict[str, str], protocols: str, suites: str, reason: str
) -> None:
    wanted = {"ssl.enabled.protocols": protocols, "ssl.cipher.suites": suites}
    with pytest.raises(InvalidConfig, match=reason):
        make_context(tls_settings(given | wanted))


def test_javas_names_of_suites() -> None:
    suites = suites_of(
        [
            "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_DHE_RSA_WITH_AES_256_CBC_SHA",
            "ECDHE-RSA-AES256-GCM-SHA384", "TLS_AES_128_GCM_SHA256",
        ]
    )  # fmt: skip
    assert suites.has_tls13
    assert suites.older.split(":") == [
        "ECDHE-ECDSA-AES128-SHA256", "AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305",
        "DHE-RSA-AES256-SHA", "ECDHE-RSA-AES256-GCM-SHA384",
    ]  # fmt: skip


def test_a_key_that_is_not_the_certificates_is_refused(
    tmp_path: Path, given: dict[str, str], authority: trustme.CA
) -> None:
    one, other = authority.issue_cert("localhost"), authority.issue_cert("localhost")
    path = tmp_path / "mixed.pem"
    path.write_bytes(one.private_key_pem.bytes() + other.cert_chain_pems[0].bytes())
    with pytest.raises(InvalidConfig, match="KEY_VALUES_MISMATCH"):
        make_context(tls_settings(given | {"ssl.keystore.location": str(path)}))


def test_who_has_shown_a_certificate(given: dict[str, str], authority: trustme.CA) -> None:
    shown = authority.issue_cert("alice@example.org", common_name="alice", organization_name="Acme")
    der = ssl.PEM_cert_to_DER_cert(shown.cert_chain_pems[0].bytes().decode())
    made = make_context(tls_settings(given))
    (default,) = [made.principal(der)]
    assert default is not None
    assert default.name.startswith("CN=alice,")
    assert default.name.endswith(",O=Acme")
    assert made.principal(None) == ANONYMOUS
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/U"}
    assert make_context(tls_settings(given | rules)).principal(der) == KafkaPrincipal.user("ALICE")
    other = {"ssl.principal.mapping.rules": "RULE:^CN=bob.*$/bob/"}
    assert make_context(tls_settings(given | other)).principal(der) is None


def test_when_the_certificate_ends_is_known(given: dict[str, str]) -> None:
    made = make_context(tls_settings(given))
    assert made.expires_ms == made.certificate.not_valid_after_utc.timestamp() * 1_000
