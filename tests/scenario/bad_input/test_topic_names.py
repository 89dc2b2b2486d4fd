"""Names that are no topic names, least of all ways out of the log directory."""

from __future__ import annotations

import pytest

from tests.support import wire
from tests.support.broker import Broker
from tests.support.wire import WireConnection, batch

pytestmark = pytest.mark.usefixtures("bystander")

INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION = 17, 3
BAD_NAMES = [
    "",
    ".",
    "..",
    "x" * 250,
    "a/b",
    "../escape",
    "/etc/passwd",
    "a b",
    "tab\t",
    "nul\0",
    "naïve",
    "a\nb",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_bad_name_creates_no_topic(broker: Broker, connection: WireConnection, name: str) -> None:
    before = everything_near(broker)
    assert connection.create_topic(name) == INVALID_TOPIC_EXCEPTION
    assert everything_near(broker) == before


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_bad_name_is_not_made_by_asking_for_its_metadata(
    broker: Broker, connection: WireConnection, name: str
) -> None:
    before = everything_near(broker)
    reader = connection.ask(wire.METADATA, 1, wire.array([wire.string(name)]))
    for _ in range(reader.number("i")):
        reader.number("i")
        reader.string()
        reader.number("i")
        reader.string()
    reader.number("i")
    assert reader.number("i") == 1
    assert reader.number("h") == INVALID_TOPIC_EXCEPTION
    assert everything_near(broker) == before


@pytest.mark.parametrize("name", ["..", "../escape", "/etc/passwd"])
def test_nothing_is_written_under_a_bad_name(broker: Broker, connection: WireConnection, name: str) -> None:
    before = everything_near(broker)
    error, _ = connection.produce(name, batch())
    assert error in {INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION}
    assert everything_near(broker) == before


def test_the_longest_name_is_a_name(broker: Broker, connection: WireConnection) -> None:
    assert connection.create_topic("y" * 249) == 0


def everything_near(broker: Broker) -> set[str]:
    """Directories in and beside the data directory; files come and go by themselves."""
    places = [broker.data_directory, broker.data_directory.parent]
    return {str(path) for place in places for path in place.iterdir() if path.is_dir()}
