"""One form for each address."""

from __future__ import annotations

import pytest

from barnabas.core.addressing.addresses import canonical_address, canonical_host


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("010.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::0:A", "2001:db8::a"),
        ("::1.2.3.4", "::102:304"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("0:0:0:0:0:ffff:7f00:1", "127.0.0.1"),
        ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
    ],
)
def test_every_spelling_of_an_address_has_one_form(text: str, form: str) -> None:
    assert canonical_address(text) == form
    assert canonical_host(text) == form


@pytest.mark.parametrize("text", ["", "*", "localhost", "1..2.3", "127.1", "256.0.0.1", ":", "::1::", "a:b"])
def test_what_is_no_address_stays_as_it_is(text: str) -> None:
    assert canonical_address(text) is None
    assert canonical_host(text) == text
