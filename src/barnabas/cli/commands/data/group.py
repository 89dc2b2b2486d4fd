"""`barnabas group`: list, describe, reset-offsets, delete."""

from __future__ import annotations

from collections.abc import Sequence

import click

from barnabas.cli.support.arguments import TopicSelection, parse_timestamp, parse_topic_selection
from barnabas.cli.support.completion import complete_group
from barnabas.cli.support.exit_codes import NotFound
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.groups import GroupDescription
from barnabas.client.admin.offset_reset import OffsetReset, Offsets, ResetTo, target_offsets
from barnabas.core.errors import GroupIdNotFound
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import LATEST

CHOICES = ("--to-earliest", "--to-latest", "--to-offset", "--to-datetime", "--shift-by")


@click.group()
def group() -> None:
    """List, describe and delete groups, and reset their offsets."""


@group.command(name="list")
@json_option
@bootstrap_option
def list_(as_json: bool, bootstrap: Bootstrap) -> None:
    """List the groups."""
    found = run(bootstrap, lambda admin: admin.list_groups())
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

    async def action(admin: Admin) -> list[tuple[GroupDescription, Offsets, Offsets]]:
        return [await _look_at(admin, name) for name in names]

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


@group.command(name="reset-offsets", short_help="Reset the offsets of a group without members.")
@click.argument("name", shell_complete=complete_group)
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:PARTITION,…]", help="Reset only this.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-offset", type=int, help="To this offset, limited to the offsets that exist.")
@click.option(
    "--to-datetime", metavar="WHEN", help="To the first record since then: ISO 8601, or ms since 1970."
)
@click.option("--shift-by", type=int, help="Move forward by N records, or back if negative.")
@click.option("--dry-run", is_flag=True, help="Print the new offsets and change nothing.")
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
    """Reset the offsets of the group NAME, which must have no members."""
    chosen = (to_earliest, to_latest, to_offset is not None, to_datetime is not None, shift_by is not None)
    if sum(chosen) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(CHOICES)}")
    if to_datetime is not None:
        reset = OffsetReset(ResetTo.TIMESTAMP, parse_timestamp(to_datetime, "--to-datetime"))
    elif to_offset is not None:
        reset = OffsetReset(ResetTo.OFFSET, to_offset)
    elif shift_by is not None:
        reset = OffsetReset(ResetTo.SHIFT, shift_by)
    else:
        reset = OffsetReset(ResetTo.EARLIEST if to_earliest else ResetTo.LATEST)
    selections = [parse_topic_selection(text, "--topic") for text in topics]

    async def action(admin: Admin) -> tuple[Offsets, Offsets]:
        committed = await admin.list_group_offsets(name)
        wanted = await _wanted(admin, selections, committed)
        if not wanted:
            raise NotFound(
                f"group {name} has no offsets to reset; to set first offsets, name topics with --topic"
            )
        target = await target_offsets(admin.cluster, reset, wanted, committed)
        if not dry_run:
            await admin.alter_group_offsets(name, target)
        return committed, target

    committed, target = run(bootstrap, action)
    rows = [
        (each.topic, str(each.partition), _shown(committed.get(each)), str(offset))
        for each, offset in sorted(target.items())
    ]
    print_table(("topic", "partition", "before", "would be" if dry_run else "now"), rows)


@group.command(short_help="Delete groups without members, and their offsets.")
@click.argument("names", nargs=-1, required=True, shell_complete=complete_group)
@bootstrap_option
def delete(names: tuple[str, ...], bootstrap: Bootstrap) -> None:
    """Delete the groups NAMES, which must have no members, and their offsets."""

    async def action(admin: Admin) -> None:
        for name in names:
            try:
                await admin.delete_groups([name])
            except GroupIdNotFound:
                raise _no_group(name) from None
            click.echo(f"deleted group {name}")

    run(bootstrap, action)


def _no_group(name: str) -> NotFound:
    return NotFound(f"there is no group {name}")


async def _look_at(admin: Admin, name: str) -> tuple[GroupDescription, Offsets, Offsets]:
    try:
        about = (await admin.describe_groups([name]))[name]
    except GroupIdNotFound:
        raise _no_group(name) from None
    committed = await admin.list_group_offsets(name)
    assigned = [each for member in about.members for each in member.partitions]
    ends = await admin.list_offsets(dict.fromkeys(sorted({*committed, *assigned}), LATEST))
    return about, committed, ends


async def _wanted(
    admin: Admin, selections: Sequence[TopicSelection], committed: Offsets
) -> list[TopicPartition]:
    """Partitions to reset: those of --topic, or all that the group has offsets of."""
    if not selections:
        return sorted(committed)
    wanted: list[TopicPartition] = []
    for name, partitions in selections:
        every = [each.index for each in (await admin.describe_topics([name]))[name].partitions]
        chosen = every if partitions is None else partitions
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
