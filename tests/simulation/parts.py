"""The parts that there are, and which of them a seed turns on."""

from __future__ import annotations

import random

from tests.simulation.cast import Cast, Part
from tests.simulation.client_trials import Crowd, Nearby, Throttled, Users
from tests.simulation.compaction import Compaction
from tests.simulation.compaction_trials import Graves, Undecided
from tests.simulation.consumer_groups import ConsumerGroup
from tests.simulation.disk_trials import Bits, Ledger, Unreadable
from tests.simulation.elderly import Elderly
from tests.simulation.letter_trial import Letters
from tests.simulation.lone import Lone
from tests.simulation.moving import Moving
from tests.simulation.moving_trials import Relocation
from tests.simulation.notice_trials import Notices, TokenHolders
from tests.simulation.promise_trials import Concession, Expiry, Held
from tests.simulation.recreation import Recreation
from tests.simulation.service_trial import Services
from tests.simulation.shape import Shape
from tests.simulation.sink import Sink
from tests.simulation.source import Source
from tests.simulation.storage_trials import Backlog, Blackout, Lowered, Retry, Rot, Sector
from tests.simulation.tinkerer import Tinkerer
from tests.simulation.trials import Deletion, Orphan, Overtaking, Scarcity, SeeSaw
from tests.simulation.unclean import Unclean
from tests.simulation.vandal import Vandal

CHANCE = 0.4
OF_CLUSTERS = (Moving, Unclean, Vandal)
"""Parts that one broker on its own store has no use for."""
USUAL = {
    "producer-one": 0.7,
    "transactor": 0.7,
    "usurper": 0.3,
    "reader": 0.7,
    "committed": 0.7,
    "member-1": 0.5,
    "member-2": 0.5,
    "administrator": 0.7,
    "copier-1": 0.6,
    "latecomer": 0.4,
    "handler-2": 0.5,
    "copier-2": 0.3,
}
"""Clients of the topics that are always there, and how often each is on the stage."""
TRIALS: dict[str, type[Part]] = {
    "see-saw": SeeSaw,
    "scarcity": Scarcity,
    "deletion": Deletion,
    "overtaking": Overtaking,
    "orphan": Orphan,
    "blackout": Blackout,
    "retry": Retry,
    "sector": Sector,
    "lowered": Lowered,
    "backlog": Backlog,
    "rot": Rot,
    "undecided": Undecided,
    "graves": Graves,
    "relocation": Relocation,
    "unreadable": Unreadable,
    "bits": Bits,
    "ledger": Ledger,
    "crowd": Crowd,
    "elderly": Elderly,
    "nearby": Nearby,
    "throttled": Throttled,
    "users": Users,
    "source": Source,
    "notices": Notices,
    "tokens": TokenHolders,
    "services": Services,
    "letters": Letters,
    "expiry": Expiry,
    "concession": Concession,
    "held": Held,
}


def draw_usual(seed: int) -> frozenset[str]:
    chance = random.Random(f"{seed} usual clients")
    return frozenset(name for name, share in USUAL.items() if chance.random() < share)


def draw_cast(seed: int, plain_topic: str, shape: Shape) -> Cast:
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
    drawn = [part for part in every if chance.random() < CHANCE]
    if shape.settings and chance.random() < CHANCE:
        drawn.append(Tinkerer(chance, (plain_topic, "transactional")))
    return Cast([part for part in drawn if not shape.is_embedded or not isinstance(part, OF_CLUSTERS)])


def trial_of(shape: Shape, chance: random.Random) -> Cast:
    """The part that comes after everything else, or None."""
    return Cast([TRIALS[shape.trial](chance)] if shape.trial else [])
