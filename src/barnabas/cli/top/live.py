"""Loop of the live view: ask, draw, wait for the interval or a key."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.live import Live

from barnabas.cli.support.progress import announced
from barnabas.cli.support.session import Bootstrap
from barnabas.cli.top.keys import Choice, unbuffered_keys
from barnabas.cli.top.screen import draw, draw_once, rows_for
from barnabas.cli.top.source import Frame, Source, open_source
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.view.rows import GroupQuery, TopicQuery
from barnabas.core.errors import KafkaError

LOOK_AGAIN_S = 0.6
"""A rate needs two looks at the counters."""
PRINTED_ROWS = 20
PRINTED_COLUMNS = 120
"""Width on a pipe; COLUMNS is another."""


async def run_once(bootstrap: Bootstrap, directory: Path | None, principal: str | None) -> None:
    """Print one picture."""
    is_sized = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if is_sized else PRINTED_COLUMNS)
    choice = Choice()
    async with (
        announced(f"waiting for {directory or bootstrap}"),
        open_source(bootstrap, directory, principal) as source,
    ):
        await _frame(source, choice, PRINTED_ROWS, PRINTED_ROWS)
        await asyncio.sleep(LOOK_AGAIN_S)
        picture = draw_once(await _frame(source, choice, PRINTED_ROWS, PRINTED_ROWS), choice)
    console.print(picture)


async def run_live(
    bootstrap: Bootstrap, directory: Path | None, principal: str | None, interval_s: float
) -> None:
    """Draw again and again until the user quits. A broker that is away is a note, not the end."""
    console = Console()
    choice = Choice()
    async with AsyncExitStack() as stack:
        async with announced(f"waiting for {directory or bootstrap}"):
            source = await stack.enter_async_context(open_source(bootstrap, directory, principal))
            frame = await _frame(source, choice, *rows_for(console.size.height, 1))
        with _pressed() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
            note = ""
            while not choice.is_over:
                live.update(draw(frame, choice, note), refresh=True)
                chosen = await _next_choice(keys, choice, interval_s)
                if chosen == choice and choice.is_paused:
                    continue
                choice = chosen
                try:
                    rows = rows_for(console.size.height, len(frame.overview.brokers))
                    frame, note = await _frame(source, choice, *rows), ""
                except (ClusterUnreachable, KafkaError) as error:
                    note = f"no answer: {error}"


async def _next_choice(keys: asyncio.Queue[str], choice: Choice, interval_s: float) -> Choice:
    """The choice after the next keys, or the same one when the interval is over."""
    try:
        async with asyncio.timeout(interval_s):
            choice = choice.after(await keys.get())
    except TimeoutError:
        return choice
    while not keys.empty():
        choice = choice.after(keys.get_nowait())
    return choice


async def _frame(source: Source, choice: Choice, topics: int, groups: int) -> Frame:
    return await source.frame(
        TopicQuery(sort=choice.topics_by, descending=choice.topics_descending, limit=topics),
        GroupQuery(sort=choice.groups_by, descending=choice.groups_descending, limit=groups),
    )


@contextmanager
def _pressed() -> Iterator[asyncio.Queue[str]]:
    """Keys that the user presses inside this context."""
    keys: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        for key in os.read(descriptor, 64).decode(errors="replace") or "q":  # the end of the terminal quits
            keys.put_nowait(key)

    with unbuffered_keys():
        loop.add_reader(descriptor, read)
        try:
            yield keys
        finally:
            loop.remove_reader(descriptor)
