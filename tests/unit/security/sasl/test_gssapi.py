"""GSSAPI without Kerberos: what follows once a context stands, and what a principal is called."""

from __future__ import annotations

import pytest

from barnabas.core.errors import InvalidConfig
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.gssapi import MESSAGE_BYTES_MAX, GssapiAuthentication
from barnabas.security.sasl.kerberos_names import KerberosNames, NoMatchingRule
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason

OFFER = Challenge(b"wrapped:\x01\0\0\0")


class Context:
    """Stands after so many tokens; wrapping can be seen."""

    initiator = "alice@EXAMPLE.COM"

    def __init__(self, tokens: int, last_answer: bytes = b"answer") -> None:
        self._tokens = tokens
        self._last_answer = last_answer

    @property
    def is_complete(self) -> bool:
        return self._tokens == 0

    def step(self, token: bytes) -> bytes:
        assert token
        self._tokens -= 1
        return self._last_answer if self.is_complete else b"more"

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped:" + message

    def unwrap(self, message: bytes) -> bytes:
        return message.removeprefix(b"wrapped:")


def server(context: Context, *rules: str) -> GssapiAuthentication:
    return GssapiAuthentication(context, KerberosNames(rules or ("DEFAULT",), "EXAMPLE.COM"))


def test_a_context_of_two_tokens_then_the_layers() -> None:
    talk = server(Context(2))
    assert talk.step(b"first") == Challenge(b"more")
    assert talk.step(b"second") == Challenge(b"answer")
    assert talk.step(b"") == OFFER
    assert talk.step(b"wrapped:\x01\0\0\0") == Done(b"", KafkaPrincipal.user("alice"))


def test_a_context_that_has_nothing_to_say_offers_at_once() -> None:
    talk = server(Context(1, b""))
    assert talk.step(b"first") == OFFER
    assert talk.step(b"\x01\0\0\0alice@EXAMPLE.COM") == Done(b"", KafkaPrincipal.user("alice"))


def test_an_authorization_id_does_not_change_the_user() -> None:
    talk = server(Context(1, b""))
    talk.step(b"first")
    assert talk.step(b"\x01\0\0\0admin@EXAMPLE.COM") == Done(b"", KafkaPrincipal.user("alice"))


@pytest.mark.parametrize("choice", [b"", b"\x01\0\0", b"\x02\0\0\0", b"\x05\0\0\0"])
def test_another_layer_is_refused(choice: bytes) -> None:
    talk = server(Context(1, b""))
    talk.step(b"first")
    with pytest.raises(AuthenticationRefused) as refused:
        talk.step(choice)
    assert refused.value.reason is Reason.MALFORMED


def test_nothing_is_said_between_the_context_and_the_layers() -> None:
    talk = server(Context(1))
    talk.step(b"first")
    with pytest.raises(AuthenticationRefused):
        talk.step(b"something")


def test_a_message_has_a_bound() -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        server(Context(1)).step(b"x" * (MESSAGE_BYTES_MAX + 1))
    assert refused.value.reason is Reason.TOO_LARGE


def test_who_has_no_short_name_is_refused() -> None:
    talk = server(Context(1, b""), "RULE:[2:$1]")
    talk.step(b"first")
    with pytest.raises(AuthenticationRefused) as refused:
        talk.step(b"\x01\0\0\0")
    assert refused.value.reason is Reason.BAD_CREDENTIALS


@pytest.mark.parametrize(
    ("rules", "principal", "name"),
    [
        (["DEFAULT"], "alice@EXAMPLE.COM", "alice"),
        (["DEFAULT"], "kafka/host@EXAMPLE.COM", "kafka"),
        (["DEFAULT"], "alice", "alice"),
        (["DEFAULT"], "alice@OTHER.COM", None),
        (["DEFAULT"], "a/b/c@EXAMPLE.COM", None),
        (["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "DEFAULT"], "alice@OTHER.COM", "alice"),
        (["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "DEFAULT"], "alice@EXAMPLE.COM", "alice"),
        (["RULE:[1:$1@$0]"], "alice@EXAMPLE.COM", None),
        (["RULE:[2:$1-$2](kafka-.*)"], "kafka/host@EXAMPLE.COM", "kafka-host"),
        (["RULE:[2:$1-$2](zk-.*)"], "kafka/host@EXAMPLE.COM", None),
        (["RULE:[1:$1]/L"], "ALICE@EXAMPLE.COM", "alice"),
        (["RULE:[1:$1]s/a/x/"], "abba@EXAMPLE.COM", "xbba"),
        (["RULE:[1:$1]s/a/x/g"], "abba@EXAMPLE.COM", "xbbx"),
        (["RULE:[1:$1]s/a/x/g/U"], "abba@EXAMPLE.COM", "XBBX"),
        (["RULE:[1:$1]s/(b+)/<$1>/"], "abba@EXAMPLE.COM", "a<bb>a"),
        (["RULE:[1:$3]"], "alice@EXAMPLE.COM", None),
    ],
)
def test_short_names(rules: list[str], principal: str, name: str | None) -> None:
    names = KerberosNames(rules, "EXAMPLE.COM")
    if name is None:
        with pytest.raises(NoMatchingRule):
            names.short_name(principal)
    else:
        assert names.short_name(principal) == name


@pytest.mark.parametrize(
    "rule", ["", "RULE", "RULE:[1:$1", "RULE:[x:$1]", "RULE:[1:$1](()", "RULE:[1:$1]s/(/x/"]
)
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(InvalidConfig):
        KerberosNames([rule], "EXAMPLE.COM")
