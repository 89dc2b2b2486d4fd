"""Server-sent events: fragments of HTML that htmx puts into the page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from barnabas.console.html.elements import Content, render

HEARTBEAT_S: Final = 15.0
"""A silent stream sends a comment, so that a viewer who has left is noticed."""


def event(content: Content, base: str) -> bytes:
    """One event. The fragment has no htmx attributes: the nonce of the page is not known here."""
    shown = render(content, base=base)
    lines = shown.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"data: {each}\n" for each in lines).encode() + b"\n"


def stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(_with_heartbeats(events), media_type="text/event-stream")


async def _with_heartbeats(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b": connected\n\n"
    following: asyncio.Future[bytes] = asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait((following,), timeout=HEARTBEAT_S)
            if not done:
                yield b": still here\n\n"
                continue
            try:
                found = following.result()
            except StopAsyncIteration:
                return
            yield found
            following = asyncio.ensure_future(anext(events))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        if hasattr(events, "aclose"):
            with contextlib.suppress(RuntimeError):
                await events.aclose()
