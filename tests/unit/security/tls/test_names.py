"""From the subject of a certificate to a user: Java's spelling of the name, and Kafka's rules."""

from __future__ import annotations

import pytest
from cryptography.x509 import Name, NameAttribute, RelativeDistinguishedName
from cryptography.x509.oid import NameOID as Of

from barnabas.core.errors import InvalidConfig
from barnabas.security.tls.distinguished_name import name_of
from barnabas.security.tls.principal_mapping import PrincipalMapping

A = NameAttribute


@pytest.mark.parametrize(
    ("parts", "printed"),
    [
        (
            [
                A(Of.COUNTRY_NAME, "DE"),
                A(Of.ORGANIZATION_NAME, "Acme"),
                A(Of.COMMON_NAME, "a"),
            ],
            "CN=a,O=Acme,C=DE",
        ),
        (
            [A(Of.ORGANIZATION_NAME, 'Acme, "Inc" + <x>;=#\\'), A(Of.COMMON_NAME, "#Jörg/ü")],
            r"CN=\#Jörg/ü,O=Acme\, \"Inc\" \+ \<x\>\;\=\#\\",
        ),
        (
            [
                A(Of.DOMAIN_COMPONENT, "com"),
                A(Of.USER_ID, "u1"),
                A(Of.STREET_ADDRESS, "S 1"),
            ],
            "STREET=S 1,UID=u1,DC=com",
        ),
        ([A(Of.LOCALITY_NAME, " lead trail ")], r"L=\ lead trail\ "),
        (
            [A(Of.EMAIL_ADDRESS, "a@b.c"), A(Of.SERIAL_NUMBER, "77")],
            "2.5.4.5=#13023737,1.2.840.113549.1.9.1=#16056140622e63",
        ),
    ],
)
def test_a_name_is_printed_as_java_prints_it(parts: list[NameAttribute[str]], printed: str) -> None:
    """The expected texts are what `X500Principal.getName()` of Java 17 says of these names."""
    assert name_of(Name(parts).public_bytes()) == printed


def test_a_part_with_two_attributes() -> None:
    both = RelativeDistinguishedName([A(Of.COMMON_NAME, "b"), A(Of.ORGANIZATIONAL_UNIT_NAME, "a")])
    assert name_of(Name([both]).public_bytes()) == "CN=b+OU=a"


RULES = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U,"
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L"
)


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("CN=duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=Duke,OU=sme", "duke"),
        ("OU=JavaSoft,O=Sun Microsystems", None),
    ],
)
def test_rules_are_tried_in_order(name: str, user: str | None) -> None:
    assert PrincipalMapping.parse(RULES).user(name) == user


@pytest.mark.parametrize("text", ["DEFAULT", "", RULES + ",DEFAULT", RULES + "\n DEFAULT "])
def test_default_takes_the_whole_name(text: str) -> None:
    assert PrincipalMapping.parse(text).user("OU=JavaSoft,O=Sun") == "OU=JavaSoft,O=Sun"


def test_a_replacement_may_hold_more_than_groups() -> None:
    assert PrincipalMapping.parse(r"RULE:CN=(\w+)/\$$1\/x$9/U").user("CN=a") == "$A/X$9"


def test_a_pattern_takes_the_whole_name_and_no_exponential_time() -> None:
    mapping = PrincipalMapping.parse("RULE:CN=(a+)+/$1/")
    assert mapping.user("CN=aaa,O=x") is None
    assert mapping.user("CN=" + "a" * 5_000 + "!") is None


@pytest.mark.parametrize("text", ["RULE:CN=(.*)", "RULE:(.*/x/", "default", "RULE:a/b/X", "RULE:(?=a)/b/"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping.parse(text)
