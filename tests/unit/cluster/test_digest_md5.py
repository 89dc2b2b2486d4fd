"""DIGEST-MD5: the example of RFC 2831, and servers that are not what they say."""

from __future__ import annotations

import pytest

from barnabas.cluster.zookeeper.digest_md5 import DigestLogin, LoginRefused

CHALLENGE = b'realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",qop="auth",charset=utf-8,algorithm=md5-sess'
ANSWER = (
    b'charset=utf-8,username="kafka",realm="zk-sasl-md5",nonce="OA6MG9tEQGm2hh",cnonce="OA6MHXh6VqTrRk",'
    b'nc=00000001,qop=auth,digest-uri="zookeeper/zk-sasl-md5",response=PROOF'
)


def test_the_password_is_proved_and_asked_for_a_proof() -> None:
    exchange = DigestLogin("kafka", "secret").exchange("OA6MHXh6VqTrRk")
    assert next(exchange) == b""
    answer, _, proof = exchange.send(CHALLENGE).rpartition(b"=")
    assert answer + b"=PROOF" == ANSWER
    assert len(proof) == 32
    with pytest.raises(LoginRefused, match="has not proved that it knows the password"):
        exchange.send(b"rspauth=" + proof)


@pytest.mark.parametrize(
    "challenge", [b"", b"\xff", b'nonce="', b'realm="r"', b'nonce="n",qop="auth-conf"', b"nonce"]
)
def test_what_is_no_challenge_is_refused(challenge: bytes) -> None:
    exchange = DigestLogin("kafka", "secret").exchange()
    next(exchange)
    with pytest.raises(LoginRefused):
        exchange.send(challenge)


def test_no_password_is_shown() -> None:
    assert "secret" not in repr(DigestLogin("kafka", "secret"))
