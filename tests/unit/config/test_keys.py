import pytest

from barnabas.config.definitions.keys import ConfigType, Definition, Key, at_least, between, one_of
from barnabas.core.errors import InvalidConfig

ROWS = Definition(
    [
        Key("log.segment.bytes", ConfigType.INT, 1 << 30, at_least(14)),
        Key("log.cleanup.policy", ConfigType.LIST, ["delete"], one_of("compact", "delete")),
        Key("ratio", ConfigType.DOUBLE, 0.5, between(0, 1)),
        Key("enable", ConfigType.BOOLEAN, True),
        Key("name", ConfigType.STRING, None),
    ]
)


def test_values_are_parsed_by_their_type() -> None:
    texts = {
        "log.segment.bytes": " 1024 ",
        "log.cleanup.policy": "compact, delete",
        "ratio": "0.25",
        "enable": "FALSE",
    }
    assert ROWS.parse(texts) == {
        "log.segment.bytes": 1024,
        "log.cleanup.policy": ["compact", "delete"],
        "ratio": 0.25,
        "enable": False,
    }


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("log.segment.bytes", "13", "at least 14"),
        ("log.segment.bytes", "1e3", "whole number"),
        ("log.segment.bytes", str(1 << 31), "32 bits"),
        ("log.cleanup.policy", "delete,shred", "one of compact, delete"),
        ("ratio", "1.5", "at most 1"),
        ("enable", "yes", "true or false"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason) as refused:
        ROWS.key(name).parse(text)
    assert name in str(refused.value)


def test_an_unknown_key_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(InvalidConfig, match=r"log\.segment\.bytes"):
        ROWS.key("log.segments.byte")


@pytest.mark.parametrize(
    ("name", "text"), [("log.cleanup.policy", "compact,delete"), ("enable", "false"), ("ratio", "0.25")]
)
def test_rendering_is_the_mirror_of_parsing(name: str, text: str) -> None:
    row = ROWS.key(name)
    assert row.render(row.parse(text)) == text
