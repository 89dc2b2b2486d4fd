"""kcat, the command-line client of many operators (an older librdkafka)."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.support.fixtures import TopicFactory

pytestmark = [
    pytest.mark.client("kcat"),
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]


def kcat(bootstrap: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.feature("codec-{codec}")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_there_and_back(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"line {i} of {codec}\n" for i in range(300))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec, given=lines)
    assert kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q") == lines


@pytest.mark.feature("headers")
@pytest.mark.parametrize("acks", ["1", "all"])
def test_keys_headers_and_nulls_survive(bootstrap: str, topic: str, acks: str) -> None:
    sent = "k1:v1\nk2:\n"
    kcat(bootstrap, "-P", "-t", topic, "-K:", "-Z", "-H", "h=1", "-X", f"acks={acks}", given=sent)
    read = kcat(bootstrap, "-C", "-t", topic, "-J", "-o", "beginning", "-e", "-q").splitlines()
    first, second = map(json.loads, read)
    assert (first["key"], first["payload"], first["headers"]) == ("k1", "v1", ["h", "1"])
    assert (second["key"], second["payload"], second["offset"]) == ("k2", None, 1)


@pytest.mark.feature("idempotence")
def test_an_idempotent_producer_is_served(bootstrap: str, topic: str) -> None:
    lines = "".join(f"{i}\n" for i in range(1_000))
    kcat(bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true", given=lines)
    assert kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q") == lines


@pytest.mark.feature("assign", "offsets-for-times")
def test_reading_starts_at_an_offset_from_the_end_or_at_a_time(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", given="a\nb\nc\nd\n")

    def read(start: str) -> str:
        return kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-o", start, "-e", "-q")

    assert read("2") == "c\nd\n"
    assert read("-1") == "d\n"
    assert read("s@1000") == "a\nb\nc\nd\n"


@pytest.mark.feature("connect", "describe-topic", "list-offsets")
def test_metadata_and_offset_queries_are_answered(bootstrap: str, new_topic: TopicFactory) -> None:
    topic = new_topic(partitions=3)
    kcat(bootstrap, "-P", "-t", topic, "-p", "1", given="a\nb\n")
    listed = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert [b["name"] for b in listed["brokers"]] == [bootstrap]
    assert [p["partition"] for p in listed["topics"][0]["partitions"]] == [0, 1, 2]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:1:-1").split() == [topic, "[1]", "offset", "2"]
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:1:-2").split() == [topic, "[1]", "offset", "0"]
