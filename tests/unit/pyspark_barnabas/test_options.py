"""Options, and what is said of wrong ones."""

from __future__ import annotations

import pickle

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST
from pyspark_barnabas.shared import options as parse
from pyspark_barnabas.shared.options import OptionError, Options


def test_option_names_ignore_case() -> None:
    options = Options({"STARTINGOFFSETS": '{"a": {"0": 5, "1": -2}}', "subscribe": "b, a"})
    assert parse.starting(options, is_stream=True).offsets == {
        TopicPartition("a", 0): 5,
        TopicPartition("a", 1): EARLIEST,
    }
    assert parse.subscription(options).topics == ("a", "b")


def test_a_stream_starts_at_the_end_and_a_batch_at_the_beginning() -> None:
    assert parse.starting(Options({}), is_stream=True).default == LATEST
    assert parse.starting(Options({}), is_stream=False).default == EARLIEST


def test_bootstrap_servers_may_be_several() -> None:
    options = Options({"kafka.bootstrap.servers": "a:1, [::1]:2"})
    assert parse.cluster_config(options).bootstrap == (Endpoint("a", 1), Endpoint("::1", 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribed": "t"}, "did you mean subscribe"),
        ({"kafka.bootstrap.server": "t"}, "did you mean kafka.bootstrap.servers"),
        ({"kafka.sasl.mechanisms": "PLAIN"}, "did you mean kafka.sasl.mechanism"),
        ({"bootstrap.servers": "h:1"}, r"begin with kafka\.: kafka\.bootstrap\.servers"),
        ({"bootstrap_servers": "h:1"}, r"begin with kafka\.: kafka\.bootstrap\.servers"),
        ({"group.id": "g"}, r"kafka\.group\.id"),
        ({"kafka.subscribe": "t"}, "it is subscribe, without kafka"),
        ({"kafka.startingoffsets": "t"}, "it is startingOffsets, without kafka"),
    ],
)
def test_an_unknown_name_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.security.protocol": "SSLv3"}, r"kafka\.security\.protocol is one of"),
        ({"kafka.security.protocol": "SASL_SSL"}, r"kafka\.sasl\.mechanism is one of"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            r"needs sasl\.jaas\.config",
        ),
    ],
)
def test_a_protocol_that_is_not_spoken_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse.cluster_config(Options({"kafka.bootstrap.servers": "a:1", **given}))


def test_secrets_travel_as_references_and_show_up_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A config is what executors get: what it is pickled to holds no password."""
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="a" password="${{env:KAFKA_PASSWORD}}";'
    config = parse.cluster_config(
        Options(
            {
                "kafka.bootstrap.servers": "a:1",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": jaas,
            }
        )
    )
    assert b"s3cret" not in pickle.dumps(config)
    assert "PASSWORD" not in repr(config)
    login = config.security.secured().login
    assert login is not None
    assert next(login.begin("host")) == b"\0a\0s3cret"
    assert "s3cret" not in repr(login)


def test_a_batch_cannot_start_at_its_end() -> None:
    with pytest.raises(OptionError, match="cannot be latest"):
        parse.starting(Options({"startingOffsets": "latest"}), is_stream=False)


@pytest.mark.parametrize(("text", "expected"), [("500ms", 500), ("10s", 10_000), ("15m", 900_000), ("7", 7)])
def test_durations_have_units(text: str, expected: int) -> None:
    assert Options({"maxTriggerDelay": text}).duration_ms("maxTriggerDelay", 1) == expected
