"""PLAIN: a client with the right password gets in, under its own name only."""

from __future__ import annotations

import pytest

from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.outcome import AuthenticationRefused, Done, Reason
from barnabas.security.sasl.plain import MESSAGE_BYTES_MAX, PlainAuthentication, PlainUsers

USERS = PlainUsers.of_options({"username": "broker", "user_alice": "wonder", "user_bob": "b\u00fcilder"})


def refusal(token: bytes) -> AuthenticationRefused:
    with pytest.raises(AuthenticationRefused) as refused:
        PlainAuthentication(USERS).step(token)
    return refused.value


@pytest.mark.parametrize("authorization_id", ["", "alice"])
def test_the_right_password(authorization_id: str) -> None:
    done = PlainAuthentication(USERS).step(f"{authorization_id}\0alice\0wonder".encode())
    assert done == Done(b"", KafkaPrincipal.user("alice"))


def test_a_password_beyond_ascii() -> None:
    assert PlainAuthentication(USERS).step("\0bob\0b\u00fcilder".encode()).principal.name == "bob"


def test_no_client_acts_as_another_user() -> None:
    """CVE-2017-12610."""
    assert refusal(b"bob\0alice\0wonder").reason is Reason.OTHER_AUTHORIZATION_ID


def test_a_wrong_password_and_an_unknown_user_hear_the_same() -> None:
    wrong, unknown = refusal(b"\0alice\0wrong"), refusal(b"\0carol\0wonder")
    assert (wrong.reason, wrong.message) == (unknown.reason, unknown.message)
    assert wrong.reason is Reason.BAD_CREDENTIALS


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0\0wonder",
        b"\0alice\0",
        b"\0alice\0wonder\0",
        b"\0\xff\0\xfe",
        b"\0" * 9,
    ],
)
def test_what_is_not_a_message_is_refused(token: bytes) -> None:
    assert refusal(token).reason is Reason.MALFORMED


def test_no_password_is_shown() -> None:
    shown = repr(USERS) + repr(vars(USERS)) + repr(refusal(b"\0alice\0sesame")) + str(refusal(b"sesame"))
    assert "wonder" not in shown
    assert "sesame" not in shown


def test_a_message_has_a_bound() -> None:
    longest = b"\0alice\0".ljust(MESSAGE_BYTES_MAX, b"x")
    assert refusal(longest).reason is Reason.BAD_CREDENTIALS
    assert refusal(longest + b"x").reason is Reason.TOO_LARGE
