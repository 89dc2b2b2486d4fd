"""SCRAM: the examples of RFC 5802's family, an independent client, and every way to cheat."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from scramp import ScramClient

from barnabas.security.credentials.decoys import Decoys
from barnabas.security.credentials.scram_credential import (
    KnownCredential,
    ScramCredential,
    ScramMechanism,
)
from barnabas.security.identity.principal import KafkaPrincipal
from barnabas.security.sasl.outcome import AuthenticationRefused, Challenge, Done, Reason
from barnabas.security.sasl.scram import MESSAGE_BYTES_MAX, CredentialLookup, ScramAuthentication

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
PASSWORDS = {"user": "pencil", "a,b=c": "x"}
TOKENS = {"tokenid": "aG1hYw=="}
EXPIRY_MS = 1_700_000_000_000


def find(
    passwords: dict[str, str], expires_ms: int | None
) -> Callable[[ScramMechanism, str], KnownCredential]:
    def lookup(mechanism: ScramMechanism, name: str) -> KnownCredential:
        if name not in passwords:
            return Decoys(b"secret").of(mechanism, name)
        credential = ScramCredential.derive(mechanism, passwords[name])
        return KnownCredential(credential, KafkaPrincipal.user(name), expires_ms)

    return lookup


LOOKUP = CredentialLookup(find(PASSWORDS, None), find(TOKENS, EXPIRY_MS))


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.derive(SHA_256, "pencil", 4096, salt)
    known = KnownCredential(credential, KafkaPrincipal.user("user"))
    lookup = CredentialLookup(lambda *_: known, lambda *_: known)
    server = ScramAuthentication(SHA_256, lookup, nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    done = server.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert done == Done(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", known.principal)


def test_the_keys_of_rfc_5802() -> None:
    """Its example is SHA-1's; the derivation is the same function with another digest."""
    salted = SHA_256.salted_password("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert base64.b64encode(salted) == b"xKSVEDI6tPlSysH6mUQZOeeOp01r6B3fcJbodRPcYV0="
    assert base64.b64encode(SHA_256.hmac(salted, b"Client Key")) == (
        b"pg/JI9Z+hkSpLRa5btpe9GVrDHJcSEN0viVTVXaZbos="
    )


def log_in(
    mechanism: ScramMechanism, name: str, password: str, *, change: Callable[[str], str] = lambda text: text
) -> Done:
    client = ScramClient([mechanism.mechanism_name], name, password)
    server = ScramAuthentication(mechanism, LOOKUP)
    challenge = server.step(client.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.token.decode())
    done = server.step(change(client.get_client_final()).encode())
    assert isinstance(done, Done)
    client.set_server_final(done.token.decode())
    return done


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_an_independent_client_logs_in(mechanism: ScramMechanism) -> None:
    assert log_in(mechanism, "user", "pencil").principal == KafkaPrincipal.user("user")


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["user", "nobody"])
def test_a_wrong_password_and_an_unknown_user_fail_alike(mechanism: ScramMechanism, name: str) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        log_in(mechanism, name, "wrong")
    assert refused.value.reason is Reason.BAD_CREDENTIALS
    assert name not in refused.value.message


def test_an_unknown_user_has_the_same_salt_each_time() -> None:
    salts = set()
    for nonce in (b"one", b"two"):
        challenge = ScramAuthentication(SHA_256, LOOKUP).step(b"n,,n=nobody,r=" + nonce)
        salts.add(challenge.token.split(b",")[1])
    assert len(salts) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(",r=", ",r=x"),
        lambda text: text.replace(",p=", "x,p="),
        lambda text: text.replace("c=biws", "c=eSws"),
        lambda text: text.replace(text[text.index(",p=") :], ",p=AAAA"),
    ],
)
def test_a_message_that_was_changed_proves_nothing(change: Callable[[str], str]) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        log_in(SHA_256, "user", "pencil", change=change)
    assert refused.value.reason is Reason.BAD_CREDENTIALS


def test_a_proof_of_another_exchange_is_worth_nothing() -> None:
    """CVE-2024-56128: the nonce that comes back is the one that went out."""
    credential = ScramCredential.derive(SHA_256, "pencil", 4096, b"salt" * 4)
    known = KnownCredential(credential, KafkaPrincipal.user("user"))
    lookup = CredentialLookup(lambda *_: known, lambda *_: known)
    client = ScramClient(["SCRAM-SHA-256"], "user", "pencil")
    recorded = ScramAuthentication(SHA_256, lookup)
    first = client.get_client_first().encode()
    client.set_server_first(recorded.step(first).token.decode())
    final = client.get_client_final().encode()
    assert isinstance(recorded.step(final), Done)
    replayed = ScramAuthentication(SHA_256, lookup)
    replayed.step(first)
    with pytest.raises(AuthenticationRefused):
        replayed.step(final)


def signed(credential: ScramCredential, salted: bytes, messages: str, bare: str) -> bytes:
    """A final message with a valid proof, for any content."""
    client_key = SHA_256.hmac(salted, b"Client Key")
    signature = SHA_256.hmac(credential.stored_key, f"{messages},{bare}".encode())
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("binding", "nonce", "is_taken"),
    [
        ("biws", "{nonce}", True),
        ("biws", "abc", False),
        ("biws", "{nonce}x", False),
        ("biws", "another", False),
        ("eSws", "{nonce}", False),
    ],
)
def test_a_right_proof_over_another_nonce_or_binding(binding: str, nonce: str, is_taken: bool) -> None:
    """CVE-2024-56128: the proof covers what the client says, so it says nothing about what it should say."""
    salt = b"salt" * 4
    credential = ScramCredential.derive(SHA_256, "pencil", 4096, salt)
    known = KnownCredential(credential, KafkaPrincipal.user("user"))
    server = ScramAuthentication(SHA_256, CredentialLookup(lambda *_: known, lambda *_: known))
    challenge = server.step(b"n,,n=user,r=abc").token.decode()
    shown = challenge.split(",")[0].removeprefix("r=")
    bare = f"c={binding},r={nonce.format(nonce=shown)}"
    salted = SHA_256.salted_password("pencil", salt, 4096)
    final = signed(credential, salted, f"n=user,r=abc,{challenge}", bare)
    if is_taken:
        assert isinstance(server.step(final), Done)
    else:
        with pytest.raises(AuthenticationRefused) as refused:
            server.step(final)
        assert refused.value.reason is Reason.BAD_CREDENTIALS


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a,b",
        b"n,,m=x,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user,r=abc\0",
        b"\xff\xfe",
        b"c=biws,r=x,p=AAAA",
    ],
)
def test_what_is_not_a_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        ScramAuthentication(SHA_256, LOOKUP).step(message)
    assert refused.value.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    "message", [b"", b"n,,n=user,r=abc", b"c=biws,r=x", b"c=biws,r=x,p=", b"c=biws,r=x,p=A"]
)
def test_what_is_not_a_last_message_is_refused(message: bytes) -> None:
    server = ScramAuthentication(SHA_256, LOOKUP)
    server.step(b"n,,n=user,r=x")
    with pytest.raises(AuthenticationRefused):
        server.step(message)


def test_no_client_acts_as_another_user() -> None:
    with pytest.raises(AuthenticationRefused) as refused:
        ScramAuthentication(SHA_256, LOOKUP).step(b"n,a=admin,n=user,r=abc")
    assert refused.value.reason is Reason.OTHER_AUTHORIZATION_ID


def first_with_extension(token_id: str, extension: str) -> tuple[ScramAuthentication, bytes, bytes]:
    server = ScramAuthentication(SHA_256, LOOKUP)
    bare = f"n={token_id},r=abc{extension}".encode()
    challenge = server.step(b"n,," + bare)
    return server, bare, challenge.token


def final_for(bare: bytes, challenge: bytes, password: str) -> bytes:
    nonce, salt, iterations = (part[2:] for part in challenge.decode().split(","))
    salted = SHA_256.salted_password(password, base64.b64decode(salt), int(iterations))
    client_key = SHA_256.hmac(salted, b"Client Key")
    last = f"c=biws,r={nonce}".encode()
    signature = SHA_256.hmac(SHA_256.hash(client_key), bare + b"," + challenge + b"," + last)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return last + b",p=" + base64.b64encode(proof)


def test_a_delegation_token_logs_in_by_its_extension() -> None:
    server, bare, challenge = first_with_extension("tokenid", ",tokenauth=true")
    done = server.step(final_for(bare, challenge, TOKENS["tokenid"]))
    assert isinstance(done, Done)
    assert (done.by_delegation_token, done.expires_ms) == (True, EXPIRY_MS)


@pytest.mark.parametrize("extension", ["", ",tokenauth=false", ",other=true"])
def test_a_token_is_no_user(extension: str) -> None:
    server, bare, challenge = first_with_extension("tokenid", extension)
    with pytest.raises(AuthenticationRefused):
        server.step(final_for(bare, challenge, TOKENS["tokenid"]))


def test_names_with_commas_and_equals_signs() -> None:
    server = ScramAuthentication(SHA_256, LOOKUP)
    bare = b"n=a=2Cb=3Dc,r=abc"
    challenge = server.step(b"n,," + bare)
    done = server.step(final_for(bare, challenge.token, "x"))
    assert isinstance(done, Done)
    assert done.principal.name == "a,b=c"


def test_a_message_has_a_bound() -> None:
    longest = b"n,,r=abc".replace(b"r=", b"n=user,r=").ljust(MESSAGE_BYTES_MAX, b"x")
    server = ScramAuthentication(SHA_256, LOOKUP)
    assert isinstance(server.step(longest), Challenge)
    for each in (server, ScramAuthentication(SHA_256, LOOKUP)):
        with pytest.raises(AuthenticationRefused) as refused:
            each.step(longest + b"x")
        assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize("count", [16, 17])
def test_extensions_are_few(count: int) -> None:
    message = b"n,,n=user,r=abc" + b",a=b" * count
    if count <= 16:
        assert isinstance(ScramAuthentication(SHA_256, LOOKUP).step(message), Challenge)
    else:
        with pytest.raises(AuthenticationRefused):
            ScramAuthentication(SHA_256, LOOKUP).step(message)


@pytest.mark.parametrize("name", ["user", "nobody"])
def test_the_doubled_nonce_of_an_old_librdkafka_is_named_in_the_log_alone(name: str) -> None:
    """librdkafka before 2.6.1; its users look for a wrong password, because the client cannot learn more."""
    server = ScramAuthentication(SHA_256, LOOKUP, nonce="server")
    server.step(f"n,,n={name},r=client".encode())
    with pytest.raises(AuthenticationRefused) as refused:
        server.step(b"c=biws,r=clientclientserver,p=AAAA")
    assert refused.value.reason is Reason.DOUBLED_NONCE
    assert "librdkafka before 2.6.1" in refused.value.hint
    with pytest.raises(AuthenticationRefused) as wrong:
        log_in(SHA_256, "user", "wrong")
    assert refused.value.message == wrong.value.message
    assert wrong.value.hint == ""
