"""What kind of cluster a seed has, how far apart its machines are, and how busy its clients are.

Most of the time of a real cluster is quiet, and a quiet second costs next to nothing here. So clients work in
bursts: in each window of `WINDOW_S` they are busy for a share that the seed draws, and then their pauses are
`IDLE_PACE` times as long. Delays between machines are drawn, too: the longer
they may be, the more often what was sent first over one connection arrives after what was sent later over
another.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from barnabas.core.limits import WRITTEN_ELSEWHERE_BYTES_MIN

WINDOW_S = 30.0
IDLE_PACE = 10.0
DRIFT_PPM_MAX = 500
TRIALS = ("see-saw", "scarcity", "deletion", "overtaking", "orphan")
"""Histories that chance hardly ever brings about (`trials`)."""
TRIAL_SHARE = 0.5


class Shape(NamedTuple):
    brokers: int = 3
    busy_share: float = 1.0
    latency_ms_max: float = 2.0
    fetch_wait_ms_max: int = 500
    """How long a leader lets a follower wait that has everything."""
    drift_ppm_max: int = 0
    """By so much at most the clock of a machine is too fast or too slow, and all its timers with it."""
    is_restarted: bool = False
    """Whether all brokers are killed at last and have to come back with all that they knew."""
    written_elsewhere_bytes_min: int = WRITTEN_ELSEWHERE_BYTES_MIN
    """From how many bytes on records are written by a thread, which takes a while."""
    trial: str = ""
    """Which one comes at last, if any."""

    def pace(self, now_s: float) -> float:
        return 1.0 if now_s % WINDOW_S < WINDOW_S * self.busy_share else IDLE_PACE


def draw_shape(seed: int) -> Shape:
    chance = random.Random(f"{seed} shape")
    return Shape(
        brokers=chance.choice((3, 3, 3, 5)),
        busy_share=chance.choice((0.03, 0.05, 0.05, 0.1, 0.2, 0.3)),
        latency_ms_max=chance.choice((2.0, 2.0, 10.0, 50.0)),
        fetch_wait_ms_max=chance.choice((1_000, 2_500, 2_500)),
        drift_ppm_max=chance.choice((0, 0, 100, DRIFT_PPM_MAX)),
        is_restarted=chance.random() < 0.3,
        written_elsewhere_bytes_min=chance.choice((1, WRITTEN_ELSEWHERE_BYTES_MIN)),
        trial=chance.choice(TRIALS) if chance.random() < TRIAL_SHARE else "",
    )
