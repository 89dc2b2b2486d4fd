"""Kind of cluster of a seed: brokers, distances between machines, load of the clients.

A real cluster is quiet most of the time, and a quiet second costs next to nothing here. So clients work in
bursts. In each window of `WINDOW_S` they are busy for a share that the seed draws; then their pauses are
`IDLE_PACE` times as long. Delays between machines are drawn, too. The longer they may be, the more often
payloads of different connections overtake each other.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from barnabas.core.limits import WRITTEN_ELSEWHERE_BYTES_MIN
from tests.simulation.settings import FLUSH_EACH, SINGLE, TRIAL_SETTINGS, draw_settings

WINDOW_S = 30.0
IDLE_PACE = 10.0
DRIFT_PPM_MAX = 500
TRIALS = (
    "see-saw", "scarcity", "deletion", "overtaking", "orphan", "blackout", "retry", "sector", "lowered",
    "backlog",
)  # fmt: skip
"""Histories that chance hardly ever brings about (`trials`)."""
EMBEDDED_TRIALS = ("rot", "retry", "backlog", "scarcity", "deletion")
"""Those that one broker can stand."""
LATER_TRIALS = (
    "undecided", "graves", "relocation", "unreadable", "crowd", "bits", "elderly", "nearby", "throttled",
    "users", "source",
)  # fmt: skip
"""Those that a seed without one of `TRIALS` may have."""
LATER_EMBEDDED_TRIALS = (
    "ledger",
    "undecided",
    "graves",
    "relocation",
    "bits",
    "elderly",
    "throttled",
    "users",
)
LATEST_TRIALS = ("notices", "tokens")
"""Those that a seed without one of `LATER_TRIALS` may have."""
LATEST_EMBEDDED_TRIALS = ("tokens",)
NEWEST_TRIALS = ("services", "letters")
"""Those that a seed without any of these may have."""
PROMISE_TRIALS = ("expiry", "concession", "held")
"""Those that a few seeds with several brokers have instead of any other."""
ZOOKEEPER_TRIALS = ("notices",)
"""Those that change the clock of the store, which the shared store has from its machine."""
TRIAL_SHARE = 0.6
LATER_TRIAL_SHARE = 0.8
PROMISE_TRIAL_SHARE = 0.06
EMBEDDED_SHARE = 0.25
SHARED_SHARE = 0.25
"""Of the seeds with several brokers."""


class Shape(NamedTuple):
    brokers: int = 3
    busy_share: float = 1.0
    latency_ms_max: float = 2.0
    fetch_wait_ms_max: int = 500
    """Time for which a leader lets a follower wait that has everything."""
    drift_ppm_max: int = 0
    """By so much at most the clock of a machine is too fast or too slow, and all its timers with it."""
    is_restarted: bool = False
    """Whether all brokers are killed at last and have to come back with all that they knew."""
    written_elsewhere_bytes_min: int = WRITTEN_ELSEWHERE_BYTES_MIN
    """From how many bytes on records are written by a thread, which takes a while."""
    trial: str = ""
    """Which one comes at last, if any."""
    settings: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Of brokers, beside those that are the same in every run."""
    is_embedded: bool = False
    """Whether the cluster is one broker that keeps its own coordination store."""
    is_shared: bool = False
    """Whether the brokers share an embedded store, as those of one machine do."""

    @property
    def survives_power_cuts(self) -> bool:
        """Whether every acknowledged record is on disk, on any machine."""
        return self.settings.get(FLUSH_EACH) == "1"

    def pace(self, now_s: float) -> float:
        return 1.0 if now_s % WINDOW_S < WINDOW_S * self.busy_share else IDLE_PACE


def draw_shape(seed: int, trial: str = "") -> Shape:
    """With a `trial` it comes at last, in a cluster that can stand it."""
    chance = random.Random(f"{seed} shape")
    shape = Shape(
        brokers=chance.choice((3, 3, 3, 5)),
        busy_share=chance.choice((0.03, 0.05, 0.05, 0.1, 0.2, 0.3)),
        latency_ms_max=chance.choice((2.0, 2.0, 10.0, 50.0)),
        fetch_wait_ms_max=chance.choice((1_000, 2_500, 2_500)),
        drift_ppm_max=chance.choice((0, 0, 100, DRIFT_PPM_MAX)),
        is_restarted=chance.random() < 0.3,
        written_elsewhere_bytes_min=chance.choice((1, WRITTEN_ELSEWHERE_BYTES_MIN)),
        trial=chance.choice(TRIALS) if chance.random() < TRIAL_SHARE else "",
    )
    shape = shape._replace(settings=draw_settings(seed))
    if _is_embedded(seed, trial):
        shape = embedded(shape)
    elif _is_shared(seed, trial):
        shape = shape._replace(is_shared=True, drift_ppm_max=0)  # one machine has one clock
    shape = shape._replace(
        trial=trial or _promise_trial(seed, shape) or shape.trial or _later_trial(seed, shape)
    )
    return shape._replace(settings={**shape.settings, **TRIAL_SETTINGS.get(shape.trial, {})})


def _is_embedded(seed: int, trial: str) -> bool:
    is_drawn = random.Random(f"{seed} store").random() < EMBEDDED_SHARE
    of_one = (*EMBEDDED_TRIALS, *LATER_EMBEDDED_TRIALS, *LATEST_EMBEDDED_TRIALS, *NEWEST_TRIALS)
    of_many = (*TRIALS, *LATER_TRIALS, *LATEST_TRIALS, *NEWEST_TRIALS, *PROMISE_TRIALS)
    return is_drawn if not trial or (trial in of_one and trial in of_many) else trial in of_one


def _is_shared(seed: int, trial: str) -> bool:
    return trial not in ZOOKEEPER_TRIALS and random.Random(f"{seed} shared store").random() < SHARED_SHARE


def _promise_trial(seed: int, shape: Shape) -> str:
    chance = random.Random(f"{seed} promise trial")
    is_drawn = not shape.is_embedded and chance.random() < PROMISE_TRIAL_SHARE
    return chance.choice(PROMISE_TRIALS) if is_drawn else ""


def _later_trial(seed: int, shape: Shape) -> str:
    """Drawn apart, so that a seed with another trial keeps its world."""
    chance = random.Random(f"{seed} later trial")
    if chance.random() < LATER_TRIAL_SHARE:
        return chance.choice(LATER_EMBEDDED_TRIALS if shape.is_embedded else LATER_TRIALS)
    chance = random.Random(f"{seed} latest trial")
    if chance.random() < LATER_TRIAL_SHARE:
        has_own_store = shape.is_embedded or shape.is_shared
        return chance.choice(LATEST_EMBEDDED_TRIALS if has_own_store else LATEST_TRIALS)
    return random.Random(f"{seed} newest trial").choice(NEWEST_TRIALS)


def embedded(shape: Shape) -> Shape:
    """The same, with one broker. Its power may be cut only if each write is synced."""
    settings = {**shape.settings, **SINGLE, FLUSH_EACH: "1"}
    trial = EMBEDDED_TRIALS[TRIALS.index(shape.trial) % len(EMBEDDED_TRIALS)] if shape.trial else ""
    return shape._replace(brokers=1, is_embedded=True, settings=settings, trial=trial)
