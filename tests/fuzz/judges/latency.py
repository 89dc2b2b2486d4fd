"""Other clients' requests are answered within a bound during any input of the fuzzer.

The bound is on the broker's processor time, not on the clock of a shared machine (`prober`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.fuzz.prober import Prober, Wait

P99_S_MAX = 0.1
WORST_S_MAX = 0.5
"""One wait may be longer than the 99th percentile: a collection of garbage, a first import."""
SILENCE_S_MAX = 30.0


def complaints(waits: Sequence[Wait]) -> Iterator[str]:
    busy = sorted(wait.busy_s for wait in waits)
    if not busy:
        return
    p99_s, worst_s = busy[len(busy) * 99 // 100], busy[-1]
    if len(busy) >= 100 and p99_s > P99_S_MAX:
        yield f"slow: another client waits {p99_s * 1_000:.0f} ms in the 99th percentile"
    if worst_s > WORST_S_MAX:
        yield f"slow: another client waits {worst_s * 1_000:.0f} ms for what the broker computes"


def silence(prober: Prober) -> Iterator[str]:
    if not prober.is_served(SILENCE_S_MAX):
        yield f"stuck: another client has had no answer for {SILENCE_S_MAX:.0f} s"
