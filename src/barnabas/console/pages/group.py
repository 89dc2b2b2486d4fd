"""One group: members, assignment, lag; a reset of its offsets, shown before it is made; its deletion.

The name of a group can be any text, so it is in the query of an address and never in its path.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.client.admin.offset_reset import OffsetReset, ResetTo, target_offsets
from barnabas.console.html.charts import time_line
from barnabas.console.html.components import (
    Column,
    badge,
    card,
    choice,
    crumbs,
    data_table,
    empty,
    facts,
    field,
    folded,
    live_sign,
    note,
)
from barnabas.console.html.elements import Content, Element, a, button, code, div, input_, p, span
from barnabas.console.html.figures import DASH, duration, known, moment, number
from barnabas.console.pages.groups import caught_up_in, trend_word
from barnabas.console.pages.topic import group_state
from barnabas.console.records.query import InvalidQuery, time_ms
from barnabas.console.view.rows import GroupDetail, GroupOffsetRow
from barnabas.console.web.connections import reason_of
from barnabas.console.web.context import FAILURES, Context, Form, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.console.web.streams import event, stream
from barnabas.core.ids import TopicPartition

REFRESH_S = 3.0
ROWS_MAX = 2_000
_TARGET = re.compile(r"(?P<topic>.+):(?P<partition>[0-9]{1,9})=(?P<offset>[0-9]{1,18})")
_ACTIVE = frozenset({"Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def _id(ctx: Context) -> str:
    found = ctx.query.get("id")
    if not found:
        raise Refused("the address names no group: ?id=…")
    return found


def path_of(group_id: str, page: str = "") -> str:
    return f"/group{page}?{urlencode({'id': group_id})}"


async def show(ctx: Context) -> Response:
    group_id = _id(ctx)
    found = await ctx.view.group(group_id)
    live = div(
        _figures(ctx, found),
        id="group",
        class_="stack",
        attributes={"hx-sse:connect": path_of(group_id, "/live")},
    )
    actions: Content = None
    if ctx.may_change:
        actions = a("Reset offsets", href=path_of(group_id, "/reset"), class_="button")
    return ctx.page(
        f"Group {group_id}",
        heading(group_id, live_sign(), actions, above=crumbs((("Groups", "/groups"),))),
        live,
        _manage(ctx, group_id) if ctx.may_change else None,
    )


async def show_live(ctx: Context) -> Response:
    group_id = _id(ctx)

    async def events() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(REFRESH_S)
            if not ctx.may_enter:
                return  # the user has signed out
            try:
                yield event(_figures(ctx, await ctx.view.group(group_id)), ctx.base)
            except FAILURES as error:
                yield event(note(reason_of(error), tone="bad"), ctx.base)

    return stream(events())


def _figures(ctx: Context, found: GroupDetail) -> Content:
    row = found.row
    history = ctx.connection.history
    points = [(at, float(lag)) for at, lag in history.of(row.group_id)]
    about = facts(
        (
            ("State", group_state(row.state)),
            ("Protocol", row.kind),
            ("Assignor", found.assignor or DASH),
            ("Coordinator", known(row.coordinator_id)),
            ("Members", number(row.members)),
            ("Lag", f"{number(row.lag_records)} records"),
            ("Lag in time", duration(row.lag_ms)),
            ("Trend", trend_word(history.trend(row.group_id))),
            ("Caught up", caught_up_in(row.lag_records, history.trend(row.group_id))),
        )
    )
    chart = None
    if len(points) >= 2:
        chart = card(
            "Lag over time", time_line(points, "Lag over time", shown=number, span=duration), _samples(points)
        )
    return (card(None, about), chart, card("Offsets", _offsets(found)), card("Members", _members(found)))


def _samples(points: list[tuple[int, float]]) -> Element:
    """The table behind the chart."""
    rows = [(moment(at), number(lag)) for at, lag in points[-30:]]
    columns = (Column("Time (UTC)"), Column("Lag", is_number=True))
    return folded("The same as a table", data_table("Samples of the lag", columns, rows))


def _offsets(found: GroupDetail) -> Content:
    if not found.offsets:
        return empty(p("The group has committed no offsets."))
    owners = {each.member_id: each.client_id for each in found.members}
    rows = [_offset(each, owners) for each in found.offsets[:ROWS_MAX]]
    more = len(found.offsets) - ROWS_MAX + found.more_offsets
    place = f"/api/group has {number(len(found.offsets))}" if found.more_offsets else "/api/group has all"
    return (
        data_table("Offsets", _OFFSET_COLUMNS, rows),
        note(f"{number(more)} more partitions are not shown; {place}.") if more > 0 else None,
    )


def _offset(row: GroupOffsetRow, owners: dict[str, str]) -> tuple[Content, ...]:
    behind = None
    if row.committed is not None and row.end_offset is not None and row.committed > row.end_offset:
        behind = badge("beyond the end", "bad")
    elif row.committed is not None and row.start_offset is not None and row.committed < row.start_offset:
        behind = badge("removed already", "bad", title="retention has removed records that were not read")
    query = urlencode({"start": "offset", "offset": row.committed or 0, "partition": row.partition})
    next_record = a("next", href=f"/topics/{row.topic}/messages?{query}") if row.lag_records else None
    return (
        (a(row.topic, href=f"/topics/{row.topic}"), f" · {row.partition}"),
        (number(row.committed), " ", behind),
        number(row.end_offset),
        number(row.lag_records),
        duration(row.lag_ms),
        owners.get(row.member_id or "", DASH) if row.member_id else span("none", class_="soft"),
        next_record,
    )


def _members(found: GroupDetail) -> Content:
    if not found.members:
        return empty(p("The group has no members now."))
    rows = [
        (
            (
                code(each.member_id),
                span(f" static: {each.instance_id}", class_="soft") if each.instance_id else None,
            ),
            each.client_id,
            each.host,
            _assigned(each.partitions),
        )
        for each in found.members
    ]
    columns = (Column("Member"), Column("Client"), Column("Host", is_optional=True), Column("Partitions"))
    return data_table("Members", columns, rows)


def _assigned(partitions: tuple[tuple[str, int], ...]) -> str:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return (
        "; ".join(f"{topic}: {', '.join(map(str, sorted(each)))}" for topic, each in sorted(by_topic.items()))
        or DASH
    )


# --- reset ---


async def show_reset(ctx: Context) -> Response:
    group_id = _id(ctx)
    found = await ctx.view.group(group_id)
    return _reset_page(ctx, found, _reset_form(ctx, found))


def _reset_page(ctx: Context, found: GroupDetail, *content: Content) -> Response:
    group_id = found.row.group_id
    warning = None
    if found.row.state in _ACTIVE:
        warning = note(
            "The group has members. Stop them first: brokers refuse offsets of an active group.", tone="warn"
        )
    above = crumbs((("Groups", "/groups"), (group_id, path_of(group_id))))
    return ctx.page(f"Reset {group_id}", heading("Reset offsets", above=above), warning, *content)


def _reset_form(ctx: Context, found: GroupDetail, form: Form | None = None) -> Element:
    def given(name: str) -> str:
        return form.text(name) if form is not None else ""

    topics = sorted({each.topic for each in found.offsets})
    options = [
        ("earliest", "the first record"),
        ("latest", "the end"),
        ("time", "a time"),
        ("offset", "an offset"),
        ("shift", "back or forward by a number"),
    ]
    return card(
        "Where to",
        ctx.form_to(
            path_of(found.row.group_id, "/reset/preview"),
            div(
                choice(
                    "topic",
                    "Topic",
                    [("", "all of its topics"), *((each, each) for each in topics)],
                    value=given("topic"),
                ),
                field("partitions", "Partitions", value=given("partitions"), placeholder="all, or 0, 2, 5"),
                choice("to", "To", options, value=given("to")),
                field("time", "Time, in UTC", kind="datetime-local", step=1, value=given("time")),
                field(
                    "number",
                    "Offset or number",
                    kind="number",
                    value=given("number"),
                    hint="Below 0 goes back.",
                ),
                class_="row fields",
            ),
            button("Show what would change", class_="primary", id="preview"),
        ),
    )


async def preview_reset(ctx: Context) -> Response:
    """The dry run: committed offsets before and after, and what that means in records."""
    group_id = _id(ctx)
    form = await ctx.form()
    found = await ctx.view.group(group_id)
    partitions = _chosen(found, form)
    committed = {TopicPartition(each.topic, each.partition): each.committed for each in found.offsets}
    known = {at: offset for at, offset in committed.items() if offset is not None}
    targets = await target_offsets(ctx.cluster, _reset_of(form), partitions, known)
    rows = {TopicPartition(each.topic, each.partition): each for each in found.offsets}
    again = sum(max(known.get(at, 0) - offset, 0) for at, offset in targets.items() if at in known)
    skipped = sum(max(offset - known[at], 0) for at, offset in targets.items() if at in known)
    table = data_table(
        "Before and after",
        _PREVIEW_COLUMNS,
        [_change(at, known.get(at), offset, rows[at].end_offset) for at, offset in sorted(targets.items())],
    )
    told = p(
        "The group reads ", span(f"{number(again)} records again", class_="badge info"),
        " and skips ", span(f"{number(skipped)} records", class_="badge warn" if skipped else "badge"), ".",
    )  # fmt: skip
    confirm = ctx.form_to(
        path_of(group_id, "/reset"),
        [
            input_(type="hidden", name="target", value=f"{at.topic}:{at.partition}={offset}")
            for at, offset in targets.items()
        ],
        div(
            button("Reset to these offsets", class_="danger", id="confirm-reset"),
            a("Cancel", href=path_of(group_id), class_="button ghost"),
            class_="actions",
        ),
    )
    return _reset_page(
        ctx, found, _reset_form(ctx, found, form), card("Before and after", told, table, confirm)
    )


def _change(at: TopicPartition, before: int | None, after: int, end: int | None) -> tuple[Content, ...]:
    moved = DASH if before is None else f"{after - before:+,}"
    return (
        f"{at.topic} · {at.partition}",
        number(before),
        number(after),
        moved,
        DASH if end is None or before is None else number(max(end - before, 0)),
        DASH if end is None else number(max(end - after, 0)),
    )


def _chosen(found: GroupDetail, form: Form) -> list[TopicPartition]:
    topic, partitions = form.text("topic"), form.text("partitions")
    wanted: set[int] | None = None
    if partitions and partitions != "all":
        try:
            wanted = {int(each) for each in partitions.replace(",", " ").split()}
        except ValueError:
            raise Refused("partitions are numbers, such as 0, 2, 5") from None
    chosen = [
        TopicPartition(each.topic, each.partition)
        for each in found.offsets
        if (not topic or each.topic == topic) and (wanted is None or each.partition in wanted)
    ]
    if not chosen:
        raise Refused("the group has no offsets in these partitions")
    return chosen


def _reset_of(form: Form) -> OffsetReset:
    match form.text("to"):
        case "earliest":
            return OffsetReset(ResetTo.EARLIEST)
        case "latest":
            return OffsetReset(ResetTo.LATEST)
        case "offset":
            return OffsetReset(ResetTo.OFFSET, form.number("number", at_least=0))
        case "shift":
            return OffsetReset(ResetTo.SHIFT, form.number("number"))
        case "time":
            try:
                return OffsetReset(ResetTo.TIMESTAMP, time_ms(form.text("time")))
            except InvalidQuery as error:
                raise Refused(str(error)) from None
    raise Refused("choose where to reset to")


async def reset(ctx: Context) -> Response:
    """Commit the offsets that the preview has shown, and no others."""
    group_id = _id(ctx)
    form = await ctx.form()
    targets = dict(_target(each) for each in form.all("target"))
    if not targets:
        raise Refused("there is nothing to reset")
    where = ", ".join(f"{at}={offset}" for at, offset in list(targets.items())[:20])
    await ctx.change("reset offsets", f"{group_id} {where}", ctx.admin.alter_group_offsets(group_id, targets))
    return ctx.redirect(path_of(group_id), f"Reset {len(targets)} partitions of {group_id}.")


def _target(text: str) -> tuple[TopicPartition, int]:
    found = _TARGET.fullmatch(text)
    if found is None:
        raise Refused("the form is damaged: show the change again")
    return TopicPartition(found["topic"], int(found["partition"])), int(found["offset"])


# --- deletion ---


def _manage(ctx: Context, group_id: str) -> Element:
    form = ctx.form_to(
        path_of(group_id, "/delete"),
        p("Its committed offsets are deleted. Consumers of this name begin by their auto.offset.reset."),
        field("confirm", "Type the name of the group", required=True),
        button("Delete the group", class_="danger", id="delete-group"),
    )
    offsets = ctx.form_to(
        path_of(group_id, "/offsets/delete"),
        p("Deletes the committed offsets of one topic. The group must not be subscribed to it."),
        div(field("topic", "Topic", required=True), button("Delete offsets", class_="danger"), class_="row"),
    )
    return card(
        "Manage",
        folded("Delete offsets of a topic …", offsets, class_="folded danger"),
        folded("Delete this group …", form, class_="folded danger"),
    )


async def delete(ctx: Context) -> Response:
    group_id = _id(ctx)
    if (await ctx.form()).text("confirm") != group_id:
        raise Refused(f"nothing was done: the name typed is not {group_id}")
    await ctx.change("delete group", group_id, ctx.admin.delete_groups([group_id]))
    return ctx.redirect("/groups", f"Deleted group {group_id}.")


async def delete_offsets(ctx: Context) -> Response:
    group_id = _id(ctx)
    topic = (await ctx.form()).text("topic")
    committed = await ctx.admin.list_group_offsets(group_id)
    wanted = [at for at in committed if at.topic == topic]
    if not wanted:
        raise Refused(f"{group_id} has no offsets in {topic}")
    work = ctx.admin.delete_group_offsets(group_id, wanted)
    await ctx.change("delete offsets", f"{group_id} {topic}", work)
    return ctx.redirect(path_of(group_id), f"Deleted the offsets of {group_id} in {topic}.")


async def answer(ctx: Context) -> GroupDetail:
    return await ctx.view.group(_id(ctx))


_OFFSET_COLUMNS = (
    Column("Topic · partition"),
    Column("Committed", is_number=True),
    Column("End", is_number=True, is_optional=True),
    Column("Lag", is_number=True),
    Column("Lag in time", is_number=True),
    Column("Member", is_optional=True),
    Column("Record", is_optional=True),
)
_PREVIEW_COLUMNS = (
    Column("Topic · partition"),
    Column("Before", is_number=True),
    Column("After", is_number=True),
    Column("Change", is_number=True),
    Column("Lag before", is_number=True),
    Column("Lag after", is_number=True),
)

SECTION = Section(
    "Group",
    "/group",
    routes=(
        get("/group", show),
        get("/group/live", show_live),
        get("/group/reset", show_reset),
        post("/group/reset/preview", preview_reset),
        post("/group/reset", reset),
        post("/group/delete", delete),
        post("/group/offsets/delete", delete_offsets),
    ),
    questions=(
        Question(
            "/api/group",
            "One group with members, offsets and lag.",
            answer,
            GroupDetail,
            (Parameter("id", "string", "Name of the group."),),
        ),
    ),
    is_in_navigation=False,
    within="/groups",
)
