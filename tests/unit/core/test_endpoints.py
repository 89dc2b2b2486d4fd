"""Host and port, and a listener's endpoint."""

import pytest

from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("a:1", Endpoint("a", 1)),
        ("[::1]:9092", Endpoint("::1", 9092)),
        (" a.b:65535 ", Endpoint("a.b", 65535)),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, endpoint: Endpoint) -> None:
    assert Endpoint.parse(text) == endpoint
    assert str(endpoint) == text.strip()


@pytest.mark.parametrize("text", ["a", "a:", "a:0", "a:65536", "a:b", ":1", ""])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"form HOST:PORT|no host"):
        Endpoint.parse(text)


def test_a_listeners_endpoint_is_written_with_its_name() -> None:
    assert str(ListenerEndpoint("INSIDE", Endpoint("::1", 9092), "SSL")) == "INSIDE://[::1]:9092"
