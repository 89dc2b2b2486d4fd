"""`barnabas metrics`: a Grafana dashboard and Prometheus alert rules for the metrics page."""

from __future__ import annotations

import click


@click.group()
def metrics() -> None:
    """Print a dashboard and alert rules for the metrics that `start --metrics` serves."""


@metrics.command(short_help="Print a dashboard for Grafana (JSON).")
def dashboard() -> None:
    """Print a Grafana dashboard (JSON), to be imported or provisioned."""
    from barnabas.cli.monitoring.dashboard import render_dashboard  # noqa: PLC0415 - not for --help

    click.echo(render_dashboard(), nl=False)


@metrics.command()
def alerts() -> None:
    """Print alert rules of Prometheus (YAML), for its rule_files."""
    from barnabas.cli.monitoring.alerts import render_alerts  # noqa: PLC0415 - not for --help

    click.echo(render_alerts(), nl=False)
