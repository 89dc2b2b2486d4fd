"""Topics to a real web service: at least once, refused records as dead letters, whatever ends the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.receiver import Answer, Receiver, run_receiver
from tests.support.topics import consume, produce

REASON = "__connect.errors.exception.message"


@pytest.fixture
def service() -> Iterator[Receiver]:
    with run_receiver() as running:
        yield running


def spec_of(name: str, source: str, url: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"type": "topic", "topics": source, "schema": "n INT, text STRING"},
        "sink": {"type": "http", "url": url, "backoff": "10 ms", "backoff_max": "20 ms"},
        **more,
    }


def numbers(service: Receiver) -> list[int]:
    return sorted(json.loads(each.body)["n"] for each in service.taken)


def test_refused_records_become_dead_letters_with_the_answer(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, service: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("TEST_TOKEN", "hunter2")
    source, letters = new_topic(), new_topic()
    service.answer = lambda request: (
        Answer(422, b"an odd number") if json.loads(request.body)["n"] % 2 else Answer()
    )
    produce(bootstrap, source, [*({"n": at, "text": "é"} for at in range(6)), b"{broken"])
    spec = spec_of("hooks", source, service.url)
    spec["sink"] |= {"token": "${env:TEST_TOKEN}", "headers": {"X-Shop": "eu"}}
    spec["errors"] = {"tolerance": "all", "dead_letter_topic": letters}
    run_spec(spec)
    assert numbers(service) == [0, 2, 4]
    assert service.requests[0].body == '{"n":0,"text":"é"}'.encode()
    sent = service.requests[0].headers
    assert (sent["authorization"], sent["x-shop"]) == ("Bearer hunter2", "eu")
    assert sent["content-type"] == "application/json"
    found = {each.value: each.headers[REASON].decode() for each in consume(bootstrap, letters)}
    odd = [json.dumps({"n": at, "text": "é"}).encode() for at in (1, 3, 5)]
    assert set(found) == {*odd, b"{broken"}
    assert all("422" in found[each] and "an odd number" in found[each] for each in odd)


def test_a_refused_record_stops_a_strict_pipeline_and_mass_refusal_a_lenient_one(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, service: Receiver
) -> None:
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    source, letters = new_topic(), new_topic()
    service.answer = lambda _: Answer(400, b"no")
    produce(bootstrap, source, [{"n": at} for at in range(4)])
    with pytest.raises(PipelineFailed, match=rf"the receiver refuses record {source}/0/0: .*400"):
        run_spec(spec_of("strict", source, service.url))
    errors = {"tolerance": "all", "dead_letter_topic": letters, "max_error_ratio": 0.5}
    with pytest.raises(PipelineFailed, match=r"refuses 4 of 4 rows, more than max_error_ratio 0\.5"):
        run_spec(spec_of("mass", source, service.url, errors=errors))
    assert consume(bootstrap, letters) == []
    service.answer = lambda _: Answer()
    service.requests.clear()
    run_spec(spec_of("mass", source, service.url, errors=errors))
    assert numbers(service) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("point", "row_bytes"), [("sending", 100), ("sent", 100), ("set-aside", 100), ("sending", 400_000)]
)
def test_a_driver_that_fails_anywhere_loses_nothing_and_repeats_by_the_same_keys(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory, service: Receiver,
    monkeypatch: pytest.MonkeyPatch, point: str, row_bytes: int,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark import runner
    from barnabas.pipelines.spark.context.run_context import PipelineFailed
    from barnabas.pipelines.spark.sinks import http

    waiting = [point]

    def reach(here: str) -> None:
        if here in waiting:
            waiting.remove(here)
            raise RuntimeError(f"the driver ends: {here}")

    finish, write_refused = http._finish, vars(runner)["write_refused"]

    def finishing(*arguments: Any) -> None:
        reach("sent")
        finish(*arguments)

    def setting_aside(*arguments: Any) -> None:
        write_refused(*arguments)
        reach("set-aside")

    monkeypatch.setattr(http, "_finish", finishing)
    monkeypatch.setattr(runner, "write_refused", setting_aside)
    source, letters = new_topic(), new_topic()
    produce(bootstrap, source, [{"n": at, "text": "x" * row_bytes} for at in range(12)])

    def answer(request: Any) -> Answer:
        number = json.loads(request.body)["n"]
        if number == 7 and "sending" in waiting:
            return Answer(503)  # until the retries are over: the task fails half-way
        return Answer(422) if number == 5 else Answer()

    service.answer = answer
    spec = spec_of(f"hook-{point}-{row_bytes}", source, service.url)
    spec["sink"]["retries"] = 1
    spec["errors"] = {"tolerance": "all", "dead_letter_topic": letters}
    with pytest.raises(PipelineFailed, match=r"the driver ends|cannot serve after 2 attempts: 503"):
        run_spec(spec)
    waiting.clear()
    run_spec(spec)
    assert numbers(service) == [at for at in range(12) if at != 5]
    assert len(service.requests) > 12, "nothing was repeated"
    found = consume(bootstrap, letters)
    assert {each.json["n"] for each in found} == {5}
    assert len(found) == (2 if point == "set-aside" else 1), "letters come at least once, like the rows"
