"""The client's side of each mechanism against what the standards print, and against brokers that lie."""

from __future__ import annotations

import base64
import re

import pytest

from barnabas.core.errors import SaslAuthenticationFailed
from barnabas.security.sasl.client import ITERATIONS_MAX, Exchange, Login, oauthbearer, plain, scram

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_exchange() -> Exchange:
    return scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def ends(exchange: Exchange, answer: bytes) -> bool:
    with pytest.raises(StopIteration):
        exchange.send(answer)
    return True


def test_scram_says_what_the_rfc_prints() -> None:
    exchange = rfc_exchange()
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    assert ends(exchange, SERVER_FINAL)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (SERVER_FIRST.replace(b"r=rOpr", b"r=xxxx"), "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"4096", str(ITERATIONS_MAX + 1).encode()), "iterations"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=W22"), "makes no sense"),
        (b"e=other-error", "the broker says other-error"),
        (b"\xff", "makes no sense"),
        (b"", "makes no sense"),
    ],
)
def test_a_scram_challenge_that_is_not_one_is_not_answered(first: bytes, why: str) -> None:
    exchange = rfc_exchange()
    next(exchange)
    with pytest.raises(SaslAuthenticationFailed, match=why):
        exchange.send(first)


@pytest.mark.parametrize(
    ("final", "why"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the password"),
        (b"v=", "does not know the password"),
        (b"v=!", "makes no sense"),
        (b"e=invalid-proof", "the broker says invalid-proof"),
        (b"", "makes no sense"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(final: bytes, why: str) -> None:
    exchange = rfc_exchange()
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationFailed, match=why):
        exchange.send(final)


def test_names_are_escaped_and_extensions_are_signed() -> None:
    exchange = scram("SCRAM-SHA-512", "a=b,c", "p", extensions={"tokenauth": "true"}, nonce="N")
    assert next(exchange) == b"n,,n=a=3Db=2Cc,r=N,tokenauth=true"


def test_nonces_differ() -> None:
    firsts = {next(scram("SCRAM-SHA-256", "u", "p")) for _ in range(50)}
    assert len(firsts) == 50
    assert all(re.fullmatch(rb"n,,n=u,r=[\w-]{32}", each) for each in firsts)


def test_plain_names_no_user_to_act_for() -> None:
    exchange = plain("alice", "s3cret")
    assert next(exchange) == b"\0alice\0s3cret"
    assert ends(exchange, b"")


@pytest.mark.parametrize(
    ("user", "password"), [("", "s3cret"), ("u", ""), ("u\0v", "s3cret"), ("u", "s3c\0ret")]
)
def test_plain_sends_nothing_that_reads_as_something_else(user: str, password: str) -> None:
    with pytest.raises(SaslAuthenticationFailed) as caught:
        next(plain(user, password))
    assert "s3c" not in str(caught.value)


def test_a_token_goes_in_the_form_of_rfc_7628() -> None:
    exchange = oauthbearer("abc.def.ghi", {"logicalCluster": "lkc-1"})
    assert next(exchange) == b"n,,\x01auth=Bearer abc.def.ghi\x01logicalCluster=lkc-1\x01\x01"
    assert ends(exchange, b"")


def test_a_refused_token_is_answered_and_then_raised_with_the_brokers_status() -> None:
    exchange = oauthbearer("abc.def.ghi")
    next(exchange)
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        exchange.send(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer other", "a\n"])
def test_what_is_no_token_is_not_sent_and_not_shown(token: str) -> None:
    with pytest.raises(SaslAuthenticationFailed) as caught:
        next(oauthbearer(token))
    assert "Bearer" not in str(caught.value)


def test_a_login_shows_no_secret() -> None:
    assert repr(Login("PLAIN", lambda _: plain("alice", "s3cret"))) == "Login(mechanism='PLAIN')"
