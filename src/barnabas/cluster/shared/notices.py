"""Notices of a supervisor to the shared store: processes that have ended.

A supervisor knows at once that a process has ended, and no process lives after that. So the store ends its
sessions without waiting for the timeout, and the other brokers take over. A process is named by a random
name of its own, which only this one process receives. A process id could be given to another process before
the notice arrives.

The store may be away when a notice is due. It is repeated until the store has carried it out.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.cluster.coordination.contract import ConnectionLoss
from barnabas.cluster.shared.link import Link
from barnabas.cluster.shared.messages import Event, ProcessEnded, SupervisedEnded
from barnabas.cluster.shared.session import Connect

PROCESS_VARIABLE: Final = "BARNABAS_SUPERVISED_PROCESS"
"""Environment variable with the name of the process."""
NOTICE_RETRY_S: Final = 0.05
ANSWER_TIMEOUT_S: Final = 5.0


async def report_ended(connect: Connect, process: str) -> None:
    """End the sessions of a process that has ended; waits for the store."""
    await _report(connect, ProcessEnded(process))


async def report_all_ended(connect: Connect) -> None:
    """End the sessions of all supervised processes, before the first of them is started."""
    await _report(connect, SupervisedEnded())


async def _report(connect: Connect, notice: ProcessEnded | SupervisedEnded) -> None:
    while True:
        try:
            return await _try(connect, notice)
        except (OSError, ConnectionLoss, TimeoutError):
            await asyncio.sleep(NOTICE_RETRY_S)


async def _try(connect: Connect, notice: ProcessEnded | SupervisedEnded) -> None:
    link = Link(_ignore, lambda: link.fail(ConnectionLoss))
    try:
        await connect(link)
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await link.ask(notice)
    finally:
        link.drop()


def _ignore(event: Event) -> None:
    """No session, no watches."""
