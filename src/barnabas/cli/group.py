"""`barnabas group`: list, describe, reset-offsets, delete."""

from __future__ import annotations

import click

from barnabas.cli.exits import NotFound
from barnabas.cli.moments import parse_timestamp
from barnabas.cli.names import complete_group
from barnabas.cli.output import json_option, print_json, print_table
from barnabas.cli.session import Bootstrap, bootstrap_option, run
from barnabas.client.cluster_client import ClusterClient
from barnabas.client.consumer import list_offsets
from barnabas.client.groups import GroupDescription, Groups, topics_of
from barnabas.core.errors import GroupIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, LATEST

Offsets = dict[TopicPartition, int]

CHOICES = ("--to-earliest", "--to-latest", "--to-offset", "--to-datetime", "--shift-by")


@click.group()
def group() -> None:
    """List, describe and delete groups, and move their offsets."""


@group.command(name="list")
@json_option
@bootstrap_option
def list_(as_json: bool, bootstrap: Bootstrap) -> None:
    """List the groups."""
    found = run(bootstrap, lambda cluster: Groups(cluster).list())
    if as_json:
        print_json([{"group": each.group_id, "type": each.type, "state": each.state} for each in found])
        return
    print_table(("group", "type", "state"), [(each.group_id, each.type, each.state) for each in found])


@group.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_group)
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], as_json: bool, bootstrap: Bootstrap) -> None:
    """Show members, offsets and lag of the groups NAMES."""

    async def action(cluster: ClusterClient) -> list[tuple[GroupDescription, Offsets, Offsets]]:
        return [await _look_at(cluster, name) for name in names]

    described = run(bootstrap, action)
    if as_json:
        print_json([_as_json(*each) for each in described])
        return
    for about, committed, ends in described:
        click.echo(
            f"{about.group_id}  {about.type}  {about.state}  coordinator {about.coordinator_id}"
            f"  members {len(about.members)}" + (f"  assignor {about.assignor}" if about.assignor else "")
        )
        print_table(("topic", "partition", "offset", "end", "lag", "member"), _rows(about, committed, ends))


@group.command(name="reset-offsets")
@click.argument("name", shell_complete=complete_group)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:PARTITION,…]", help="Move only this.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-offset", type=int, help="To this offset, within what there is.")
@click.option("--to-datetime", metavar="WHEN", help="To the first record since: ISO 8601, or ms since 1970.")
@click.option("--shift-by", type=int, help="So many records forward, or back if negative.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do not do it.")
@bootstrap_option
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    dry_run: bool,
    bootstrap: Bootstrap,
) -> None:
    """Move the offsets of the group NAME, which must have no members."""
    chosen = (to_earliest, to_latest, to_offset is not None, to_datetime is not None, shift_by is not None)
    if sum(chosen) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(CHOICES)}")
    since_ms = None if to_datetime is None else parse_timestamp(to_datetime, "--to-datetime")

    async def action(cluster: ClusterClient) -> tuple[Offsets, Offsets]:
        groups = Groups(cluster)
        committed = await groups.offsets(name)
        wanted = await _wanted(cluster, topics, committed)
        if not wanted:
            raise NotFound(f"group {name} has no offsets to move; to give it some, name topics with --topic")
        first = await _bounds(cluster, wanted, EARLIEST)
        last = await _bounds(cluster, wanted, LATEST)
        target: Offsets = {}
        if since_ms is not None:
            found = await _bounds(cluster, wanted, since_ms)
            target = {each: last[each] if found[each] < 0 else found[each] for each in wanted}
        for each in wanted if since_ms is None else ():
            if shift_by is not None:
                target[each] = committed.get(each, first[each]) + shift_by
            else:
                target[each] = first[each] if to_earliest else last[each] if to_latest else to_offset or 0
        target = {each: min(max(offset, first[each]), last[each]) for each, offset in target.items()}
        if not dry_run:
            await groups.commit(name, target)
        return committed, target

    committed, target = run(bootstrap, action)
    rows = [
        (each.topic, str(each.partition), _shown(committed.get(each)), str(offset))
        for each, offset in sorted(target.items())
    ]
    print_table(("topic", "partition", "before", "would be" if dry_run else "now"), rows)


@group.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_group)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: Bootstrap) -> None:
    """Delete the groups NAMES, which must have no members, and their offsets."""

    async def action(cluster: ClusterClient) -> None:
        for name in names:
            try:
                await Groups(cluster).delete(name)
            except GroupIdNotFound:
                raise _no_group(name) from None
            click.echo(f"deleted group {name}")

    run(bootstrap, action)


def _no_group(name: str) -> NotFound:
    return NotFound(f"there is no group {name}")


async def _look_at(cluster: ClusterClient, name: str) -> tuple[GroupDescription, Offsets, Offsets]:
    groups = Groups(cluster)
    try:
        about = await groups.describe(name)
    except GroupIdNotFound:
        raise _no_group(name) from None
    committed = await groups.offsets(name)
    assigned = [each for member in about.members for each in member.partitions]
    ends = await _bounds(cluster, sorted({*committed, *assigned}), LATEST)
    return about, committed, ends


async def _bounds(cluster: ClusterClient, wanted: list[TopicPartition], timestamp: int) -> Offsets:
    found: Offsets = {}
    for topic, partitions in topics_of(wanted).items():
        offsets = await list_offsets(cluster, topic, partitions, timestamp)
        found |= {TopicPartition(topic, number): offset for number, offset in offsets.items()}
    return found


async def _wanted(
    cluster: ClusterClient, topics: tuple[str, ...], committed: Offsets
) -> list[TopicPartition]:
    """What is to be moved: what was named, or all that the group has offsets of."""
    if not topics:
        return sorted(committed)
    wanted: list[TopicPartition] = []
    for text in topics:
        name, _, numbers = text.partition(":")
        topic = await cluster.topic(name)
        every = [each.index for each in topic.partitions]
        try:
            chosen = [int(number) for number in numbers.split(",")] if numbers else every
        except ValueError:
            raise click.UsageError(f"{text}: partitions are numbers separated by commas") from None
        if missing := sorted(set(chosen) - set(every)):
            raise click.UsageError(f"topic {name} has no partition {missing[0]}")
        wanted += [TopicPartition(name, number) for number in chosen]
    return wanted


def _rows(about: GroupDescription, committed: Offsets, ends: Offsets) -> list[tuple[str, ...]]:
    owners = {each: member.member_id for member in about.members for each in member.partitions}
    return [
        (
            each.topic,
            str(each.partition),
            _shown(committed.get(each)),
            str(ends[each]),
            _shown(_lag(each, committed, ends)),
            owners.get(each, "-"),
        )
        for each in sorted(ends)
    ]


def _lag(each: TopicPartition, committed: Offsets, ends: Offsets) -> int | None:
    offset = committed.get(each)
    return None if offset is None else max(ends[each] - offset, 0)


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def _as_json(about: GroupDescription, committed: Offsets, ends: Offsets) -> dict[str, object]:
    return {
        "group": about.group_id,
        "type": about.type,
        "state": about.state,
        "assignor": about.assignor,
        "coordinator": about.coordinator_id,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [list(each) for each in member.partitions],
            }
            for member in about.members
        ],
        "offsets": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": committed.get(each),
                "end": end,
                "lag": _lag(each, committed, ends),
            }
            for each, end in sorted(ends.items())
        ],
    }
