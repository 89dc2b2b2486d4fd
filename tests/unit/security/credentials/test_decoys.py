"""Users that there are not look like those that there are."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.security.credentials.decoys import Decoys, Shape
from barnabas.security.credentials.scram_credential import KnownCredential, ScramCredential, ScramMechanism
from barnabas.security.credentials.user_credentials import UserCredentials

MECHANISM = ScramMechanism.SHA_256
NAMES = [f"nobody-{number}" for number in range(1_000)]


def credential(iterations: int, salt: bytes) -> ScramCredential:
    return ScramCredential(salt, bytes(32), bytes(32), iterations)


def kafkas_salt(chance: random.Random) -> bytes:
    """A number of 130 bits in the base of 36, as Kafka's tools make them."""
    number, text = chance.getrandbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text.encode()


def shapes(decoys: Decoys) -> Counter[Shape]:
    return Counter(Shape.of(decoys.of(MECHANISM, name).credential) for name in NAMES)


def test_a_decoy_of_a_name_is_always_the_same() -> None:
    one, other = Decoys(b"secret"), Decoys(b"secret")
    first = one.of(MECHANISM, "nobody").credential
    assert first.salt == other.of(MECHANISM, "nobody").credential.salt
    assert first.salt != one.of(MECHANISM, "somebody").credential.salt
    assert first.salt != Decoys(b"another secret").of(MECHANISM, "nobody").credential.salt


@pytest.mark.parametrize("salt", [b"\1" * 24, b"\1" * 64, b"\1" * 7, kafkas_salt(random.Random(7))], ids=len)
@pytest.mark.parametrize("iterations", [4_096, 8_192, 12_345])
def test_where_all_users_are_alike_so_are_decoys(salt: bytes, iterations: int) -> None:
    known, decoys = credential(iterations, salt), Decoys(b"secret")
    decoys.add(MECHANISM, known)
    assert set(shapes(decoys)) == {Shape.of(known)}


def test_kafkas_salts_have_the_lengths_and_the_digits_of_kafkas() -> None:
    """One of 26 digits begins with a 1: there are no larger numbers of 130 bits."""
    chance, decoys = random.Random(7), Decoys(b"secret")
    decoys.add(MECHANISM, credential(4_096, kafkas_salt(chance)))
    wanted = Counter((len(salt), salt[:1] == b"1") for salt in (kafkas_salt(chance) for _ in NAMES))
    found: Counter[tuple[int, bool]] = Counter()
    for name in NAMES:
        salt = decoys.of(MECHANISM, name).credential.salt
        found[len(salt), salt[:1] == b"1"] += 1
    assert (26, False) not in found
    for each in ((25, False), (25, True), (26, True)):
        assert abs(found[each] - wanted[each]) < 80, each


def test_shapes_are_as_frequent_as_among_users() -> None:
    decoys = Decoys(b"secret")
    for number in range(100):
        decoys.add(MECHANISM, credential(8_192 if number % 4 else 4_096, bytes([number + 128]) * 24))
    found = shapes(decoys)
    assert found.keys() == {Shape(4_096), Shape(8_192)}
    assert 200 < found[Shape(4_096)] < 300


def test_another_user_moves_few_decoys() -> None:
    decoys = Decoys(b"secret")
    for number in range(100):
        decoys.add(MECHANISM, credential(8_192 if number % 4 else 4_096, bytes([number + 128]) * 24))
    before = {name: decoys.of(MECHANISM, name).credential.iterations for name in NAMES}
    decoys.add(MECHANISM, credential(16_384, b"\1" * 24))
    moved = [name for name in NAMES if decoys.of(MECHANISM, name).credential.iterations != before[name]]
    assert len(moved) < 40
    assert {decoys.of(MECHANISM, name).credential.iterations for name in moved} == {16_384}


def test_decoys_follow_the_users() -> None:
    users = UserCredentials(b"secret")
    assert users.find(MECHANISM, "nobody").credential.iterations == 4_096
    users.put("alice", {MECHANISM.mechanism_name: credential(8_192, b"\1" * 64).encode()})
    found = users.find(MECHANISM, "nobody").credential
    assert (found.iterations, len(found.salt)) == (8_192, 64)
    assert users.decoy(MECHANISM, "alice").credential.iterations == 8_192
    users.put("alice", {MECHANISM.mechanism_name: credential(5_000, b"\1" * 24).encode()})
    found = users.find(MECHANISM, "nobody").credential
    assert (found.iterations, len(found.salt)) == (5_000, 24)
    users.put("alice", {})
    assert users.find(MECHANISM, "nobody").credential.iterations == 4_096


def test_a_decoy_is_made_for_known_users_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the first SCRAM message must not tell which users there are."""
    users = UserCredentials(b"secret")
    credential = ScramCredential.derive(ScramMechanism.SHA_256, "password", 4096)
    users.put("alice", {ScramMechanism.SHA_256.mechanism_name: credential.encode()})
    made: list[str] = []
    make = Decoys.of

    def counted(decoys: Decoys, mechanism: ScramMechanism, name: str) -> KnownCredential:
        made.append(name)
        return make(decoys, mechanism, name)

    monkeypatch.setattr(Decoys, "of", counted)
    assert users.find(ScramMechanism.SHA_256, "alice").credential == credential
    assert users.find(ScramMechanism.SHA_256, "mallory").credential != credential
    assert made == ["alice", "mallory"]
