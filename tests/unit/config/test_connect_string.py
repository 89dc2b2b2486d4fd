from __future__ import annotations

import pytest

from barnabas.config.connect_string import ConnectString
from barnabas.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk:2181", ("zk:2181",), ""),
        ("zk", ("zk:2181",), ""),
        (" a:1, b:2 ", ("a:1", "b:2"), ""),
        ("a:1,b:2/kafka/blue", ("a:1", "b:2"), "/kafka/blue"),
        ("a:1/kafka/", ("a:1",), "/kafka"),
        ("a:1/", ("a:1",), ""),
        ("[::1]:2181,[fe80::1]/x", ("[::1]:2181", "[fe80::1]:2181"), "/x"),
    ],
)
def test_a_connect_string_is_hosts_and_a_chroot(text: str, hosts: tuple[str, ...], chroot: str) -> None:
    assert ConnectString.parse(text) == (hosts, chroot)
    assert ConnectString.parse(str(ConnectString.parse(text))) == (hosts, chroot)


@pytest.mark.parametrize(
    "text", ["", "/kafka", "a:", "a:0", "a:65536", "a:x", "::1", "::1:2181", "a:1,,b:1", "a:1//x", "a:1/./x"]
)
def test_what_is_no_connect_string_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        ConnectString.parse(text)
