"""The parts that there are, and which of them a seed turns on."""

from __future__ import annotations

import random

from tests.simulation.cast import Cast, Part
from tests.simulation.compaction import Compaction
from tests.simulation.consumer_groups import ConsumerGroup
from tests.simulation.lone import Lone
from tests.simulation.moving import Moving
from tests.simulation.recreation import Recreation
from tests.simulation.shape import Shape
from tests.simulation.sink import Sink
from tests.simulation.trials import Deletion, Orphan, Overtaking, Scarcity, SeeSaw
from tests.simulation.unclean import Unclean
from tests.simulation.vandal import Vandal

CHANCE = 0.4
USUAL = {
    "producer-one": 0.7,
    "transactor": 0.7,
    "usurper": 0.3,
    "reader": 0.7,
    "committed": 0.7,
    "member-1": 0.5,
    "member-2": 0.5,
    "administrator": 0.7,
    "copier": 0.6,
    "latecomer": 0.4,
}
"""Clients of the topics that are always there, and how often each is on the stage."""
TRIALS: dict[str, type[Part]] = {
    "see-saw": SeeSaw,
    "scarcity": Scarcity,
    "deletion": Deletion,
    "overtaking": Overtaking,
    "orphan": Orphan,
}


def draw_usual(seed: int) -> frozenset[str]:
    chance = random.Random(f"{seed} usual clients")
    return frozenset(name for name, share in USUAL.items() if chance.random() < share)


def draw_cast(seed: int, plain_topic: str) -> Cast:
    """`plain_topic` is what groups read."""
    chance = random.Random(f"{seed} cast")
    every: list[Part] = [
        Lone(chance),
        Compaction(chance),
        Recreation(chance),
        ConsumerGroup(chance, plain_topic),
        Moving(chance),
        Unclean(chance),
        Sink(chance),
        Vandal(chance),
    ]
    return Cast([part for part in every if chance.random() < CHANCE])


def trial_of(shape: Shape, chance: random.Random) -> Cast:
    """The one that comes when everything else is over, or nobody."""
    return Cast([TRIALS[shape.trial](chance)] if shape.trial else [])
