"""Values on the metrics page of a component, read as Prometheus reads them."""

from __future__ import annotations

from barnabas.core.reporting.metrics import Metrics, render_prometheus


def figure(metrics: Metrics, name: str, **labels: str) -> float:
    """The value of one series; a missing one is an error."""
    listed = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    series = f"{name}{{{listed}}} " if labels else f"{name} "
    lines = render_prometheus(metrics).splitlines()
    return float(next(line for line in lines if line.startswith(series)).removeprefix(series))
