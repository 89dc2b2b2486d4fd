from __future__ import annotations

import re

import pytest

from barnabas.pipelines.spec.options.value_parsers import (
    hide_passwords,
    password_complaint,
    pattern_complaint,
)


@pytest.mark.parametrize("pattern", ["a.*", r"\p{L}+", "(?<kind>a|b)-x", "orders-(?i)eu", "a{2}"])
def test_patterns_of_java_are_left_to_the_engine(pattern: str) -> None:
    assert pattern_complaint(pattern) is None


@pytest.mark.parametrize("pattern", ["a(", "[a", "*", "(?P<a"])
def test_what_no_dialect_takes_is_refused(pattern: str) -> None:
    assert "expected a regular expression" in (pattern_complaint(pattern) or "")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user:secret@host/shop",
        "postgresql://user:se@cr:et@host:5432/shop",
        "jdbc:postgresql://host/shop?user=u&password=secret",
        "postgresql://${env:USER}:secret@${env:HOST}/shop",
        "http://user:secret@registry:8081",
    ],
)
def test_a_password_inside_of_an_address_is_refused_and_hidden(address: str) -> None:
    assert "secret" not in str(password_complaint(address))
    assert "reference" in str(password_complaint(address))
    hidden = hide_passwords(f'{{"url": "{address}"}}')
    assert "[hidden]" in hidden
    assert not {"secret", "cr:et"} & set(re.split(r"[@:=]", hidden))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://user@host:5432/shop",
        "postgresql://user:${env:PASSWORD}@host/shop",
        "postgresql://${env:USER}@host/shop",
        "jdbc:postgresql://host/shop?password=${file:/run/secrets:p}",
        "${env:SHOP_URL}",
        "http://[::1]:8081/a@b",
        "s3a://bucket/year=2024/*",
    ],
)
def test_an_address_without_one_is_not(address: str) -> None:
    assert password_complaint(address) is None
    assert hide_passwords(address) == address
