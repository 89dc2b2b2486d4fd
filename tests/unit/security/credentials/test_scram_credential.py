"""SCRAM credentials as Kafka keeps them among the settings of a user."""

from __future__ import annotations

import pytest

from barnabas.security.credentials.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)

SHA_256 = ScramMechanism.SHA_256


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_what_was_written_is_read(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.derive(mechanism, "secret", 5_000)
    assert ScramCredential.decode(mechanism, credential.encode()) == credential
    assert credential.encode().endswith(",iterations=5000")


def test_one_that_kafka_wrote() -> None:
    text = (
        "salt=MXFlbGlmZGNjOXQ1dHlwa2N5b2R5cXRmbw==,"
        "stored_key=" + "A" * 43 + "=,server_key=" + "B" * 43 + "=,iterations=8192"
    )
    credential = ScramCredential.decode(SHA_256, text)
    assert (credential.salt, credential.iterations) == (b"1qelifdcc9t5typkcyodyqtfo", 8192)


@pytest.mark.parametrize("iterations", [0, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1, 10**9])
def test_iterations_are_bounded(iterations: int) -> None:
    text = ScramCredential.derive(SHA_256, "secret").encode()
    with pytest.raises(ValueError, match="iterations"):
        ScramCredential.decode(SHA_256, text.replace("iterations=4096", f"iterations={iterations}"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=x",
        "salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096",
        "salt=,iterations=4096",
        "a,b,c",
    ],
)
def test_what_is_none_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is not a|its keys") as refused:
        ScramCredential.decode(SHA_256, text)
    assert not text or text not in str(refused.value)


def test_nothing_of_it_is_printed() -> None:
    credential = ScramCredential.derive(SHA_256, "secret")
    assert repr(credential) == "ScramCredential(iterations=4096)"
