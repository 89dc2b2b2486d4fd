"""Shell completion of topics, groups and configuration keys.

A broker that is absent or slow completes nothing: a prompt must neither hang nor show errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click
from click.shell_completion import CompletionItem

from barnabas.cli.support.exit_codes import InvalidSettings
from barnabas.cli.support.session import Bootstrap, admin_of
from barnabas.client.admin.admin import Admin
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.errors import KafkaError

PATIENCE_S = 2.0

Ask = Callable[[Admin], Awaitable[Sequence[str]]]


def complete_topic(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    async def ask(admin: Admin) -> list[str]:
        return [each.name for each in await admin.list_topics()]

    return _complete(ctx, typed, ask)


def complete_group(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    async def ask(admin: Admin) -> list[str]:
        return [each.group_id for each in await admin.list_groups()]

    return _complete(ctx, typed, ask)


def complete_key(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the configuration keys of brokers and topics; no broker is asked."""
    from barnabas.config.definitions import SECTIONS  # noqa: PLC0415 - only a completion needs the rows here
    from barnabas.config.definitions.topics import TOPIC_KEYS  # noqa: PLC0415

    known = {row.name for _, rows in SECTIONS for row in rows} | set(TOPIC_KEYS)
    return [CompletionItem(each) for each in sorted(known) if each.startswith(typed)]


def _complete(ctx: click.Context, typed: str, ask: Ask) -> list[CompletionItem]:
    async def connected() -> Sequence[str]:
        async with asyncio.timeout(PATIENCE_S), admin_of(_bootstrap(ctx)) as admin:
            return await ask(admin)

    try:
        names = asyncio.run(connected())
    except (KafkaError, ClusterUnreachable, TimeoutError, ValueError, InvalidSettings):
        return []
    return [CompletionItem(each) for each in sorted(names) if each.startswith(typed)]


def _bootstrap(ctx: click.Context) -> Bootstrap:
    """Bootstrap as the command itself resolves it. A completion sees options before they are checked."""
    given = ctx.params.get("bootstrap")
    return given if isinstance(given, Bootstrap) else Bootstrap.of(ctx, given)
