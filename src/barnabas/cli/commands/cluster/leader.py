"""`barnabas leader elect`."""

from __future__ import annotations

import sys

import click

from barnabas.cli.support.completion import complete_topic
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.elections import ElectionType, elect_leaders, is_elected
from barnabas.core.errors import error_for
from barnabas.core.ids import TopicPartition


@click.group()
def leader() -> None:
    """Elect partition leaders."""


@leader.command()
@click.option("--topic", metavar="NAME", shell_complete=complete_topic, help="Only this topic; default: all.")
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition of the topic."
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect any live replica where no in-sync one lives. Acknowledged records may be lost.",
)
@bootstrap_option
def elect(topic: str | None, partition: int | None, unclean: bool, bootstrap: Bootstrap) -> None:
    """Elect the preferred (first) replicas as leaders."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

    async def action(admin: Admin) -> dict[TopicPartition, int]:
        wanted = None
        if topic is not None:
            found = (await admin.describe_topics([topic]))[topic]
            numbers = [at.index for at in found.partitions] if partition is None else [partition]
            wanted = [TopicPartition(topic, number) for number in numbers]
        return await elect_leaders(admin.cluster, kind, wanted)

    results = run(bootstrap, action)
    for each, code in sorted(results.items()):
        if not code:
            click.echo(f"{each}: elected")
        elif not is_elected(code):
            click.echo(f"barnabas: {each}: {error_for(code).protocol_name()}", err=True)
    if not results or all(code and is_elected(code) for code in results.values()):
        click.echo("no election needed: every partition has its preferred leader")
    if not all(map(is_elected, results.values())):
        sys.exit(1)
