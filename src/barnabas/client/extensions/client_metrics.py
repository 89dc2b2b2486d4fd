"""Metrics of one client: counters, gauges and histograms under Kafka's names, in Prometheus' form.

`ClientMetrics` holds a registry (`core.reporting.metrics`) and has two readers: `snapshot`, a dict of
numbers, and `prometheus`, the text of a metrics page. Names begin with the client's kind, as
`producer_record_send_total`.
"""

from __future__ import annotations

from barnabas.core.reporting.metrics import Counter, Histogram, Metrics, render_prometheus


class ClientMetrics:
    def __init__(self) -> None:
        self.registry = Metrics()
        """Components take their counters, gauges and histograms from it."""

    def snapshot(self) -> dict[str, float]:
        """Values by name, with the labels in braces. A histogram gives `_count` and `_sum`."""
        found: dict[str, float] = {}
        for family in self.registry.families():
            for labels, member in family.members.items():
                suffix = "{" + ",".join(f"{name}={value}" for name, value in labels) + "}" if labels else ""
                if isinstance(member, Histogram):
                    found[f"{family.name}_count{suffix}"] = member.count
                    found[f"{family.name}_sum{suffix}"] = member.total
                elif isinstance(member, Counter):
                    found[f"{family.name}{suffix}"] = member.value
                else:
                    found[f"{family.name}{suffix}"] = member.read()
        return found

    def prometheus(self) -> str:
        """All metrics in the text format of Prometheus."""
        return render_prometheus(self.registry)
