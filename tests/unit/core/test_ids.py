import random

import pytest

from barnabas.core.errors import InvalidTopicException
from barnabas.core.ids import TOPIC_NAME_LENGTH_MAX, Uuid, check_topic_name, java_hash


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * TOPIC_NAME_LENGTH_MAX, "...", "-"])
def test_a_legal_topic_name_passes(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * (TOPIC_NAME_LENGTH_MAX + 1), "a b", "a/b", "über", "a\n", "\0"]
)
def test_an_illegal_topic_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicException):
        check_topic_name(name)


def test_a_uuid_is_written_as_kafka_writes_it() -> None:
    raw = bytes.fromhex("0102030405060708090a0b0c0d0e0f10")
    assert str(Uuid(raw)) == "AQIDBAUGBwgJCgsMDQ4PEA"
    assert Uuid.parse("AQIDBAUGBwgJCgsMDQ4PEA") == raw


def test_a_generated_uuid_is_version_four_and_never_looks_like_an_option() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        made = Uuid.generate(chance)
        assert made[6] >> 4 == 4
        assert made[8] >> 6 == 0b10
        assert not str(made).startswith("-")


def test_a_uuid_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Uuid(b"short")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("console-consumer-12345", 158455506), ("消费者", 28099956), ("😀", 1772899)],
)
def test_java_hash_is_string_hash_code(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 129, 30_000])
def test_java_hash_of_long_names(length: int) -> None:
    text = "".join(chr(32 + each * 7 % 9_000) for each in range(length))
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    assert java_hash(text) & 0xFFFFFFFF == value
