"""Counters, gauges and histograms that cost almost nothing to update.

A request updates half a dozen metrics, so an update is a plain attribute addition on the
loop's thread: no lock, no label lookup. Whoever updates a metric asks the registry for it
once and keeps it. Rendering (the Prometheus text format) is rare and pays for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.core.sweeping import sweeping

Labels = tuple[tuple[str, str], ...]

LATENCY_BUCKETS_MS = (
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 5_000.0, 30_000.0,
)  # fmt: skip


class Counter:
    """Only grows. Update with `counter.value += n`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Gauge:
    """Whatever `read` says at the moment of asking."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read


class Histogram:
    """How many observations fell below each bound, their count and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_MS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        # Nearly everything falls into one of the first few. Compiled, to look at them in turn takes half as
        # long as to call `bisect`.
        bucket = 0
        for bound in self.bounds:
            if value <= bound:
                break
            bucket += 1
        self.counts[bucket] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Family:
    """All metrics of one name, one per set of labels."""

    def __init__(self, name: str, kind: str, doc: str) -> None:
        self.name = name
        self.kind = kind
        self.doc = doc
        self.members: dict[Labels, Counter | Gauge | Histogram] = {}


TOTAL_SUFFIX = "_total"
"""Of counters, and of nothing else: readers of the page go by it."""


class Metrics:
    """The registry: hands out metrics by name and labels, renders them all."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def counter(self, name: str, doc: str, **labels: str) -> Counter:
        found = self._member(name, "counter", doc, labels, Counter)
        assert isinstance(found, Counter)
        return found

    def histogram(self, name: str, doc: str, **labels: str) -> Histogram:
        found = self._member(name, "histogram", doc, labels, Histogram)
        assert isinstance(found, Histogram)
        return found

    def gauge(self, name: str, doc: str, read: Callable[[], float], **labels: str) -> Gauge:
        gauge = Gauge(read)
        self._family(name, "gauge", doc).members[_key(labels)] = gauge
        return gauge

    def forget(self, **labels: str) -> None:
        """Drop every metric that carries all these labels: a deleted topic leaves nothing behind."""
        gone = set(_key(labels))
        for family in self._families.values():
            for key in [key for key in family.members if gone <= set(key)]:
                del family.members[key]

    def families(self) -> Iterator[Family]:
        return iter(self._families.values())

    def _family(self, name: str, kind: str, doc: str) -> Family:
        family = self._families.setdefault(name, Family(name, kind, doc))
        assert family.kind == kind, f"{name} is a {family.kind}"
        assert (kind == "counter") == name.endswith(TOTAL_SUFFIX), f"{name} is the name of another kind"
        return family

    def _member(
        self,
        name: str,
        kind: str,
        doc: str,
        labels: dict[str, str],
        make: Callable[[], Counter | Histogram],
    ) -> Counter | Gauge | Histogram:
        members = self._family(name, kind, doc).members
        key = _key(labels)
        if key not in members:
            members[key] = make()
        return members[key]


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def render_prometheus(metrics: Metrics) -> str:
    """Everything, in the Prometheus text exposition format."""
    lines: list[str] = []
    for family in metrics.families():
        lines.append(f"# HELP {family.name} {family.doc}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, member in sorted(family.members.items()):
            if isinstance(member, Counter):
                lines.append(f"{family.name}{_labels(labels)} {member.value}")
            elif isinstance(member, Gauge):
                with sweeping("the metric", family.name):
                    lines.append(f"{family.name}{_labels(labels)} {_number(member.read())}")
            else:
                lines.extend(_histogram_lines(family.name, labels, member))
    return "\n".join(lines) + "\n"


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        le = "+Inf" if bound == float("inf") else _number(bound)
        yield f"{name}_bucket{_labels((*labels, ('le', le)))} {below}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.total)}"
    yield f"{name}_count{_labels(labels)} {below}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
