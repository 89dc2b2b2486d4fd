"""Report of a measurement: a table or JSON, and a plot of rates and percentiles for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.perf.measurement import Measurement
from barnabas.cli.support.output import print_json, print_table

if TYPE_CHECKING:
    from rich.console import Console

BAR_CELLS = 48
ROWS_MAX = 20
BARS_FROM = 2


def report(measured: Measurement, *, latency_of: str, as_json: bool, plot: bool) -> None:
    """Print the results. `latency_of` names the waits that the latencies are of."""
    found = measured.summary()
    if as_json:
        by_second = [round(rate) for rate in measured.rates]
        print_json({**found, "latency_of": latency_of, "records_per_second_by_second": by_second})
        return
    latency = found["latency_ms"]
    rate, megabytes = found["records_per_second"], found["megabytes_per_second"]
    print_table(
        ("measured", "value"),
        [
            ("records", f"{found['records']:,}"),
            ("time", f"{found['seconds']:.2f} s"),
            ("rate", f"{rate:,.0f} records/s, {megabytes:.2f} MB/s"),
            ("CPU of this process", f"{found['cpu_us_per_record']:.2f} µs a record"),
            *((f"{latency_of}, {name}", f"{value:.3f} ms") for name, value in latency.items()),
        ],
    )
    if plot and measured.records:
        _plot(measured, latency_of)


def merged(rates: list[float], rows_max: int) -> tuple[list[float], int]:
    """Mean rates of groups of seconds, at most `rows_max`, and the seconds of a group."""
    step = max(1, -(-len(rates) // rows_max))
    groups = [rates[at : at + step] for at in range(0, len(rates), step)]
    return [sum(group) / len(group) for group in groups], step


def _plot(measured: Measurement, latency_of: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to import, and only plots need it

    console = Console(highlight=False)
    rates, step = merged(measured.rates, ROWS_MAX)
    if len(rates) >= BARS_FROM:
        console.print("\nrecords a second, by time")
        rows = [(f"{at * step} s", rate, f"{rate:,.0f}") for at, rate in enumerate(rates)]
        _bars(console, rows)
    if measured.latencies.count:
        console.print(f"\n{latency_of}, ms")
        named = measured.latencies.summary()
        _bars(console, [(name, value, f"{value:.3f}") for name, value in named.items()])


def _bars(console: Console, rows: list[tuple[str, float, str]]) -> None:
    from rich.bar import Bar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    largest = max(value for _, value, _ in rows) or 1.0
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(width=BAR_CELLS)
    table.add_column(justify="right")
    for name, value, text in rows:
        table.add_row(name, Bar(largest, 0, value, width=BAR_CELLS), text)
    console.print(table)
