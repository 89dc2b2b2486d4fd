"""Counters, gauges and histograms that cost almost nothing to update.

A request updates half a dozen metrics, so an update is a plain attribute addition on the loop's thread: no
lock, no label lookup. A component gets its metric from the registry once and keeps it. Rendering (the
Prometheus text format) is rare and pays for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import islice

from barnabas.core.reporting.error_isolation import sweeping

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
    """The value that `read` returns when the metrics are rendered."""

    __slots__ = ("read",)

    def __init__(self, read: Callable[[], float]) -> None:
        self.read = read


class Histogram:
    """Number of observations below each bound, their count and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS_MS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        # Most values fall into one of the first few buckets. In compiled code a linear scan takes half as
        # long as `bisect`.
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


Collect = Callable[[], Iterator[tuple[Labels, float]]]
"""Yields the labels and the value of each member when the metrics are rendered."""


class Family:
    """All metrics of one name, one per set of labels."""

    def __init__(self, name: str, kind: str, doc: str) -> None:
        self.name = name
        self.kind = kind
        self.doc = doc
        self.members: dict[Labels, Counter | Gauge | Histogram] = {}
        self.collect: Collect | None = None


TOTAL_SUFFIX = "_total"
"""Suffix of counters only: readers of the metrics page go by it."""
SERIES_MAX = 5_000
COLLECTED_CHARACTERS_MAX = 4 * 1024 * 1024
"""Of the lines of one metric that is computed when rendered: clients choose some of its labels."""
DROPPED = "barnabas_metrics_dropped_series"


class Metrics:
    """Registry that returns metrics by name and labels."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self.series_max: Callable[[], int] = lambda: SERIES_MAX
        """Most labelled series of one metric on the page; those that existed first are shown."""

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

    def samples(self, name: str, doc: str, labels: Sequence[str], collect: Collect) -> None:
        """Members that are computed when rendered: thousands of partitions cost nothing between scrapes.

        `labels` names those that `collect` yields, for the list of metrics."""
        assert list(labels) == sorted(labels), f"the labels of {name} have no order"
        kind = "counter" if name.endswith(TOTAL_SUFFIX) else "gauge"
        self._family(name, kind, doc).collect = collect

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
    """All metrics in the Prometheus text exposition format."""
    return "".join(prometheus_lines(metrics))


def prometheus_lines(metrics: Metrics) -> Iterator[str]:
    """The same line by line, so that the caller can let requests run between the lines of a large page."""
    series_max = metrics.series_max()
    dropped: list[tuple[str, int]] = []
    for family in list(metrics.families()):
        yield f"# HELP {family.name} {family.doc}\n"
        yield f"# TYPE {family.name} {family.kind}\n"
        hidden = 0
        if family.collect is not None:
            hidden = yield from _collected_lines(family.name, family.collect, series_max)
        hidden += max(len(family.members) - series_max, 0)
        if hidden:
            dropped.append((family.name, hidden))
        for labels, member in sorted(islice(family.members.items(), series_max)):
            if isinstance(member, Counter):
                yield f"{family.name}{_labels(labels)} {member.value}\n"
            elif isinstance(member, Gauge):
                value: float | None = None
                with sweeping("the metric", family.name):
                    value = member.read()
                if value is not None:
                    yield f"{family.name}{_labels(labels)} {_number(value)}\n"
            else:
                yield from _histogram_lines(family.name, labels, member)
    yield f"# HELP {DROPPED} Labelled series that this page leaves out, past metrics.series.max or 4 MiB.\n"
    yield f"# TYPE {DROPPED} gauge\n"
    for name, count in dropped:
        yield f"{DROPPED}{_labels((('metric', name),))} {count}\n"


def _collected_lines(name: str, collect: Collect, series_max: int) -> Generator[str, None, int]:
    """Lines of the first series; returns the number of those that are left out."""
    count = shown = characters = 0
    with sweeping("the metric", name):
        for labels, number in collect():
            count += 1
            line = ""
            if shown < series_max and characters < COLLECTED_CHARACTERS_MAX:
                line = f"{name}{_labels(labels)} {_number(number)}\n"
                shown += 1
                characters += len(line)
            yield line  # a series that is left out takes time too: the caller may pause here
    return count - shown


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        le = "+Inf" if bound == float("inf") else _number(bound)
        yield f"{name}_bucket{_labels((*labels, ('le', le)))} {below}\n"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.total)}\n"
    yield f"{name}_count{_labels(labels)} {below}\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
