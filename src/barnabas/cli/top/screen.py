"""Picture of a cluster for the terminal: a line of totals, then brokers, topics and groups."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from barnabas.cli.top.keys import HELP, Choice
from barnabas.cli.top.source import Frame
from barnabas.console.html.figures import duration, number, rate, size
from barnabas.console.view.rows import BrokerRow, GroupRow, Overview, TopicRow

CHROME_LINES = 14
"""Lines of a picture without rows of topics and groups, for one broker."""
ROWS_MIN = 3


def rows_for(height: int, brokers: int) -> tuple[int, int]:
    """Rows of topics and of groups that fit into a terminal of this height."""
    left = max(height - CHROME_LINES - brokers, 2 * ROWS_MIN)
    return left - left // 2, left // 2


def draw(frame: Frame, choice: Choice, note: str = "") -> RenderableType:
    """The live view: the picture, the keys, and a line that says how it is going."""
    state = "paused" if choice.is_paused else _source(frame)
    return Group(
        picture(frame, choice),
        Text.from_markup(HELP, style="dim"),
        Text(note, style="red") if note else Text(state, style="dim"),
    )


def picture(frame: Frame, choice: Choice) -> RenderableType:
    overview = frame.overview
    return Group(
        _totals(overview),
        _brokers(overview.brokers),
        _topics(frame.topics.rows, frame.topics.total, choice),
        _groups(frame.groups.rows, frame.groups.total, choice),
    )


def draw_once(frame: Frame, choice: Choice) -> RenderableType:
    """A picture that stays as it is: it names no keys."""
    return Group(picture(frame, choice), Text(_source(frame), style="dim"))


def _source(frame: Frame) -> str:
    return "local socket" if frame.is_local else "client"


def _totals(overview: Overview) -> Text:
    line = Text(f"{overview.cluster_id}", style="bold")
    facts = (
        f"controller {overview.controller_id}",
        _counted(overview.topics, "topic"),
        _counted(overview.partitions, "partition"),
        _counted(overview.groups, "group"),
        f"in {rate(overview.traffic.bytes_in, 'B')} ({rate(overview.traffic.records_in, ' records')})",
        f"out {rate(overview.traffic.bytes_out, 'B')}",
        f"lag {number(overview.lag_records)}",
    )
    line.append("  " + " · ".join(facts), style="not bold")
    for count, what in ((overview.under_replicated, "under-replicated"), (overview.offline, "offline")):
        if count:
            line.append(f" · {number(count)} {what}", style="bold red")
    return line


def _brokers(rows: Sequence[BrokerRow]) -> Table:
    table = _table("broker", "address", "leads", "in", "out", "size", "memory", "cpu", "clients")
    for row in rows:
        name = f"{row.broker_id}{' *' if row.is_controller else ''}"
        cpu = "–" if row.cpu_percent is None else f"{row.cpu_percent:.0f} %"
        table.add_row(
            name,
            Text(row.address),
            number(row.leaders),
            rate(row.traffic.bytes_in, "B"),
            rate(row.traffic.bytes_out, "B"),
            size(row.size_bytes),
            size(row.memory_bytes),
            cpu,
            number(row.connections),
        )
    return table


def _topics(rows: Sequence[TopicRow], total: int, choice: Choice) -> Table:
    sort = f"topics ({number(total)}) by {choice.topics_by} {_arrow(choice.topics_descending)}"
    table = _table(sort, "partitions", "records", "size", "records in", "in", "out", "groups")
    for row in rows:
        is_whole = not row.under_replicated and not row.offline
        table.add_row(
            Text(row.name, style="" if is_whole else "red", overflow="ellipsis", no_wrap=True),
            number(row.partitions),
            number(row.records),
            size(row.size_bytes),
            rate(row.traffic.records_in),
            rate(row.traffic.bytes_in, "B"),
            rate(row.traffic.bytes_out, "B"),
            number(row.groups),
        )
    return table


def _groups(rows: Sequence[GroupRow], total: int, choice: Choice) -> Table:
    sort = f"groups ({number(total)}) by {choice.groups_by} {_arrow(choice.groups_descending)}"
    table = _table(sort, "state", "protocol", "members", "topics", "lag", "behind")
    for row in rows:
        table.add_row(
            Text(row.group_id, overflow="ellipsis", no_wrap=True),
            Text(row.state),
            Text(row.kind),
            number(row.members),
            number(row.topics),
            number(row.lag_records),
            duration(row.lag_ms),
        )
    return table


def _counted(count: int, noun: str) -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def _arrow(descending: bool) -> str:
    return "↓" if descending else "↑"


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
    table.add_column(first, ratio=1, no_wrap=True, min_width=20)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
