"""Each row of the table of rights (`requests.access`), allowed and denied, against both brokers.

Compared is what an authorizer decides: the errors of an answer in their order, its authorized operations, and
which of the names that rules are about it shows. `accepted.toml` here says what may differ, and why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.declarations import Versions
from barnabas.protocol.schema.message import Message
from tests.differential.case import Declared, Triple
from tests.differential.compare import differences, read_accepted, sorted_out
from tests.differential.normalise import Tree
from tests.peers import kafka
from tests.scenario.security.callers import SETTINGS
from tests.scenario.security.requests import CASES, NAMES, World
from tests.scenario.security.trial import answers, fields, prepare
from tests.support.broker import BarnabasBroker, Broker, running

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("differential-authorization")]

ROWS = [(key, place) for key, cases in CASES.items() for place in range(len(cases))]
ACCEPTED = read_accepted(Path(__file__).with_name("accepted.toml"))
COMPARED = ("error_code", "authorized_operations")


class Side(NamedTuple):
    address: Endpoint
    world: World


class Sides(NamedTuple):
    ours: Side
    kafka: Side
    needed: Counter[str]
    """The accepted differences that occurred, and under "" how many rows were tried."""


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    kafka.require_kafka()
    with ExitStack() as stack:
        peer = kafka.KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=SETTINGS)
        peer.launch()
        stack.callback(peer.kill)
        ours = BarnabasBroker(tmp_path_factory.mktemp("ours") / "data", settings={"broker.id": 1, **SETTINGS})
        stack.enter_context(running(ours))
        peer.wait_ready()
        yield Sides(_side(ours), _side(peer), Counter())


def _side(broker: Broker) -> Side:
    address = Endpoint(broker.host, broker.port)
    return Side(address, asyncio.run(prepare(address)))


def outline(answer: Message) -> Tree:
    found = list(fields(answer))
    shown = {value for _, value in found if isinstance(value, str)} & set(NAMES.values())
    return {
        "fields": [f"{name}={value}" for name, value in found if name.endswith(COMPARED)],
        "shown": sorted(shown),
    }


def heard(key: ApiKey, place: int, side: Side) -> Tree:
    found = asyncio.run(answers(key, place, side.address, side.world))
    return {name: outline(answer) for name, answer in found.items()}


@pytest.mark.parametrize(("key", "place"), ROWS, ids=[f"{key.name.lower()}-{place}" for key, place in ROWS])
def test_both_brokers_decide_the_same(key: ApiKey, place: int, sides: Sides) -> None:
    triple = Triple(Declared(key, f"row-{place}", Versions.parse("0+"), lambda _: iter(())), 0)  # type: ignore[arg-type,return-value]
    found = differences(heard(key, place, sides.ours), heard(key, place, sides.kafka))
    kept, used = sorted_out(triple, found, ACCEPTED)
    sides.needed.update({"", *(each.label for each in used)})
    assert not kept, "\n" + "\n".join(f"  {each}" for each in kept)


def test_every_accepted_difference_of_decisions_still_occurs(sides: Sides) -> None:
    if sides.needed[""] < len(ROWS):
        pytest.skip("only a whole run can tell")
    stale = [each.label for each in ACCEPTED if not sides.needed[each.label]]
    assert not stale, "accepted.toml lists what no longer differs:\n" + "\n".join(stale)
