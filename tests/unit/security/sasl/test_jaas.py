"""JAAS strings as they stand in the properties files of Apache Kafka's users."""

from __future__ import annotations

import pytest

from barnabas.core.errors import InvalidConfig
from barnabas.security.sasl.jaas import JaasEntry, parse_jaas, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_server_with_users() -> None:
    text = f'{PLAIN} required username="admin" password="a b;=\'c" user_admin="s" user_alice=\'x"y\';'
    (entry,) = parse_jaas(text)
    assert (entry.module, entry.flag, entry.module_name) == (PLAIN, "required", "PlainLoginModule")
    assert entry.options == {
        "username": "admin",
        "password": "a b;='c",
        "user_admin": "s",
        "user_alice": 'x"y',
    }


def test_comments_lines_and_several_entries() -> None:
    text = """
        // the first
        a.B REQUIRED key=word-1_x.y /* in
        between */ other="";
        c.D$E optional;
    """
    assert parse_jaas(text) == [
        JaasEntry("a.B", "required", {"key": "word-1_x.y", "other": ""}),
        JaasEntry("c.D$E", "optional", {}),
    ]


@pytest.mark.parametrize(
    ("quoted", "meant"),
    [(r'"a\"b"', 'a"b'), (r'"a\\b"', "a\\b"), (r'"\101\n"', "A\n"), (r"'\'//no comment'", "'//no comment")],
)
def test_escapes(quoted: str, meant: str) -> None:
    assert parse_jaas(f"m required k={quoted};")[0].options == {"k": meant}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "// nothing",
        "m",
        "m sometimes;",
        "m required",
        'm required k="v"',
        "m required k;",
        "m required k=;",
        "m required =v;",
        'm required k="v;',
        'm required k="v\n";',
        "m required k={v};",
        "= required;",
    ],
)
def test_what_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_jaas(text)


@pytest.mark.parametrize(
    "text",
    [
        'm required password="hunter2" user_x="hunter2"',
        'm required password="a"hunter2;',
        'm required password="hunter2"x=;',
        "m required password=hunter2{;",
        'm required k="hunter2',
    ],
)
def test_no_error_shows_a_value(text: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_jaas(text)
    assert "hunter2" not in str(refused.value) + repr(refused.value)


def test_no_repr_shows_a_value() -> None:
    assert "hunter2" not in repr(parse_jaas('m required password="hunter2";'))


def test_a_file_has_sections() -> None:
    text = """
        KafkaServer { a.B required key="{};"; c.D optional; };
        Client { // ZooKeeper's
            org.apache.zookeeper.server.auth.DigestLoginModule required
            username="kafka" password="secret";
        };
    """
    sections = parse_jaas_file(text)
    assert [each.module for each in sections["KafkaServer"]] == ["a.B", "c.D"]
    (client,) = sections["Client"]
    assert (client.module_name, client.options["password"]) == ("DigestLoginModule", "secret")


@pytest.mark.parametrize(
    "text",
    [
        "Client",
        "Client {",
        "Client { a.B required; }",
        "Client { a.B required };",
        "Client { a.B required; ;",
        "{ a.B required; };",
        "Client; { a.B required; };",
    ],
)
def test_what_is_not_a_file_of_sections_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        parse_jaas_file(text)
