"""Cluster: log directories, reassignments with their progress, elections; settings of a broker."""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.responses import Response

from barnabas.client.admin.calls.cluster import LogDir
from barnabas.client.admin.calls.per_resource import SomeFailed
from barnabas.client.admin.reassignment import current_assignment, plan_as_json, plan_from_json, plan_moves
from barnabas.client.admin.topics_and_configs import Setting
from barnabas.console.html.charts import meter
from barnabas.console.html.components import (
    Column,
    badge,
    card,
    check,
    choice,
    crumbs,
    data_table,
    empty,
    field,
    note,
    text_field,
)
from barnabas.console.html.elements import Content, Element, a, button, code, div, p
from barnabas.console.html.figures import DASH, number, size
from barnabas.console.pages.confirming import confirmed_form
from barnabas.console.pages.topic import setting_names, settings_table
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Question, Section, get, post
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType

MOVES_SHOWN = 500


@dataclass(frozen=True, slots=True)
class LogDirRow:
    broker_id: int
    path: str
    error: str | None
    replicas: int
    size_bytes: int
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class MoveRow:
    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    copied_part: float | None
    """Size of the smallest new replica, of the leader's."""


async def show(ctx: Context) -> Response:
    found = await ctx.admin.describe_log_dirs()
    dirs = _dirs(found)
    moves = await _moves(ctx, found)
    return ctx.page(
        "Cluster",
        heading("Cluster"),
        card("Log directories", data_table("Log directories", _DIR_COLUMNS, map(_dir, dirs))),
        card("Reassignments", _reassignments(ctx, moves)),
        _plans(ctx) if ctx.may_change else None,
        _elections(ctx) if ctx.may_change else None,
    )


def _dirs(found: dict[int, dict[str, LogDir]]) -> list[LogDirRow]:
    return [
        LogDirRow(
            broker_id,
            path,
            None if each.error is None else each.error.message,
            len(each.replicas),
            sum(replica.size_bytes for replica in each.replicas.values()),
            each.total_bytes if each.total_bytes >= 0 else None,
            each.usable_bytes if each.usable_bytes >= 0 else None,
        )
        for broker_id, directories in sorted(found.items())
        for path, each in sorted(directories.items())
    ]


def _dir(row: LogDirRow) -> tuple[Content, ...]:
    used: Content = DASH
    if row.total_bytes and row.usable_bytes is not None:
        part = 1 - row.usable_bytes / row.total_bytes
        used = (f"{part:.0%}", meter(part, f"Disk of {row.path}"))
    return (
        a(str(row.broker_id), href=f"/cluster/brokers/{row.broker_id}"),
        code(row.path, class_="path"),
        badge("online", "good") if row.error is None else badge(row.error, "bad"),
        number(row.replicas),
        size(row.size_bytes),
        size(row.usable_bytes),
        used,
    )


# --- reassignments ---


async def _moves(ctx: Context, dirs: dict[int, dict[str, LogDir]]) -> list[MoveRow]:
    sizes = {
        (broker_id, at): replica.size_bytes
        for broker_id, directories in dirs.items()
        for each in directories.values()
        for at, replica in each.replicas.items()
    }
    rows = []
    for at, move in sorted((await ctx.admin.list_partition_reassignments()).items()):
        old = [each for each in move.replicas if each not in move.adding]
        whole = max((sizes.get((each, at), 0) for each in old), default=0)
        copied = min((sizes.get((each, at), 0) for each in move.adding), default=0)
        part = min(copied / whole, 1.0) if whole else None
        rows.append(MoveRow(at.topic, at.partition, move.replicas, move.adding, move.removing, part))
    return rows


def _reassignments(ctx: Context, moves: list[MoveRow]) -> Content:
    if not moves:
        return empty(p("No partition moves between brokers now."))
    columns = (Column("Partition"), Column("From"), Column("To"), Column("Copied"), Column("Cancel"))
    return data_table(
        "Reassignments in progress", columns, [_move(ctx, each) for each in moves[:MOVES_SHOWN]]
    )


def _move(ctx: Context, row: MoveRow) -> tuple[Content, ...]:
    name = f"{row.topic}-{row.partition}"
    before = [each for each in row.replicas if each not in row.adding]
    after = [each for each in row.replicas if each not in row.removing]
    progress: Content = DASH
    if row.copied_part is not None:
        progress = (f"{row.copied_part:.0%}", meter(row.copied_part, f"Copied of {name}"))
    fields = {"topic": row.topic, "partition": str(row.partition)}
    return (
        a(name, href=f"/topics/{row.topic}/partitions/{row.partition}"),
        ", ".join(map(str, before)),
        ", ".join(map(str, after)),
        progress,
        confirmed_form(ctx, "/cluster/reassignment/cancel", "Cancel …", "Cancel this move", fields),
    )


def _plans(ctx: Context) -> Element:
    form = ctx.form_to(
        "/cluster/reassignment/plan",
        p("Moves the replicas of topics to these brokers. The plan is shown before anything moves."),
        div(
            field("topics", "Topics", required=True, placeholder="orders, payments"),
            field("brokers", "Brokers", required=True, placeholder="1, 2, 3"),
            field("replication", "Replicas of each", kind="number", min=1, placeholder="as now"),
            class_="row",
        ),
        button("Show the plan", class_="primary"),
    )
    return card("Move partitions", form)


async def plan(ctx: Context) -> Response:
    form = await ctx.form()
    names = [each.strip() for each in form.text("topics").split(",") if each.strip()]
    try:
        brokers = {int(each) for each in form.text("brokers").replace(",", " ").split()}
    except ValueError:
        raise Refused("brokers are numbers, such as 1, 2, 3") from None
    cluster = await ctx.admin.describe_cluster()
    racks = {each.broker_id: each.rack for each in cluster.brokers}
    unknown = sorted(brokers - racks.keys())
    if unknown:
        raise Refused(
            f"there is no broker {unknown[0]}; the cluster has {', '.join(map(str, sorted(racks)))}"
        )
    everything = current_assignment(await ctx.admin.list_topics(include_internal=True))
    moving = [at for at in everything if at.topic in names]
    missing = set(names) - {at.topic for at in moving}
    if missing:
        raise Refused(f"there is no topic {min(missing)}", 404)
    factor = form.number("replication", at_least=1) if form.text("replication") else None
    wanted = plan_moves(everything, moving, {each: racks[each] for each in brokers}, factor)
    if not wanted:
        return ctx.redirect("/cluster", "Every replica is where it should be: nothing has to move.")
    rows = [
        (str(at), ", ".join(map(str, everything[at])), ", ".join(map(str, replicas)))
        for at, replicas in wanted.items()
    ]
    columns = (Column("Partition"), Column("Now"), Column("Afterwards"))
    document = json.dumps(plan_as_json(wanted))
    confirm = ctx.form_to(
        "/cluster/reassignment",
        text_field("plan", "Plan, as kafka-reassign-partitions writes it", value=document, rows=4),
        div(
            button("Move these partitions", class_="danger"),
            a("Cancel", href="/cluster", class_="button ghost"),
            class_="actions",
        ),
    )
    above = crumbs((("Cluster", "/cluster"),))
    told = p(f"{len(rows)} partitions move. Each copies its log over the network.")
    return ctx.page(
        "Plan",
        heading("Move partitions", above=above),
        card(None, told, data_table("Plan", columns, rows), confirm),
    )


async def reassign(ctx: Context) -> Response:
    form = await ctx.form()
    try:
        wanted = plan_from_json(json.loads(form.raw("plan")))
    except (ValueError, RecursionError) as error:
        raise Refused(f"the plan cannot be read: {error}") from None
    work = ctx.admin.alter_partition_reassignments(wanted)
    await ctx.change("reassign partitions", ", ".join(map(str, list(wanted)[:20])), work)
    return ctx.redirect("/cluster", f"{len(wanted)} partitions began to move.")


async def cancel(ctx: Context) -> Response:
    form = await ctx.form()
    at = TopicPartition(form.text("topic"), form.number("partition", at_least=0))
    await ctx.change("cancel reassignment", str(at), ctx.admin.alter_partition_reassignments({at: None}))
    return ctx.redirect("/cluster", f"Cancelled the move of {at}.")


# --- elections ---


def _elections(ctx: Context) -> Element:
    kinds = (("preferred", "the preferred replica"), ("unclean", "any live replica: records may be lost"))
    form = ctx.form_to(
        "/cluster/election",
        p("The first replica of a partition is its preferred leader. After a restart, others may lead."),
        div(
            choice("kind", "Elect", kinds),
            field("topic", "Topic", placeholder="all topics"),
            field("partition", "Partition", kind="number", min=0, placeholder="all"),
            class_="row",
        ),
        check("agreed", "For an unclean election: I accept that records may be lost"),
        button("Elect", class_="primary"),
    )
    return card("Elect leaders", form)


async def elect(ctx: Context) -> Response:
    form = await ctx.form()
    is_unclean = form.text("kind") == "unclean"
    name = form.text("topic")
    if is_unclean and (not form.flag("agreed") or not name):
        raise Refused("an unclean election needs a topic, and the box that accepts the loss of records")
    wanted: list[TopicPartition] | None = None
    if name:
        topic = (await ctx.admin.describe_topics([name]))[name]
        numbers = [each.index for each in topic.partitions]
        if form.text("partition"):
            numbers = [form.number("partition", at_least=0)]
        wanted = [TopicPartition(name, each) for each in numbers]
    work = ctx.admin.elect_leaders(wanted, unclean=is_unclean)
    try:
        found = await ctx.change("elect leaders", f"{form.text('kind')} {name or 'all topics'}", work)
    except SomeFailed as error:
        return ctx.redirect("/cluster", str(error), is_failure=True)
    return ctx.redirect("/cluster", f"The election is done: {len(found)} partitions.")


# --- one broker ---


async def show_broker(ctx: Context) -> Response:
    broker_id = ctx.path_number("broker")
    resource = (ResourceType.BROKER, str(broker_id))
    found = (await ctx.admin.describe_configs([resource]))[resource]
    own = [each for each in found if not each.is_default]
    form: Content = None
    changing = f"/cluster/brokers/{broker_id}" if ctx.may_change else None
    chosen = next((each for each in found if each.name == ctx.query.get("name")), None)
    if ctx.may_change:
        name = None if chosen is None else chosen.name
        value = None if chosen is None or chosen.is_sensitive else chosen.value
        form = card(
            "Change a setting",
            ctx.form_to(
                f"/cluster/brokers/{broker_id}/settings",
                div(
                    field("name", "Setting", value=name, required=True, list="setting-names", maxlength=200),
                    field("value", "Value", value=value, autofocus=chosen is not None),
                    class_="row",
                ),
                div(
                    check("everywhere", "On all brokers"),
                    check("unset", "Return to the default"),
                    class_="row",
                ),
                button("Change", class_="primary"),
                setting_names([each.name for each in found if not each.is_read_only]),
            ),
            id_="change",
        )
    rest = [each for each in found if each.is_default]
    return ctx.page(
        f"Broker {broker_id}",
        heading(f"Broker {broker_id}", above=crumbs((("Cluster", "/cluster"),))),
        card(
            "Set",
            settings_table("Settings of this broker", own, changing)
            if own
            else note("Everything is at its default."),
        ),
        form,
        card("Defaults", settings_table("Defaults", rest, changing)),
    )


async def change_broker(ctx: Context) -> Response:
    broker_id = ctx.path_number("broker")
    form = await ctx.form()
    name = form.text("name")
    value = None if form.flag("unset") else form.text("value")
    if value == "":
        raise Refused("the value is missing; tick the box to return to the default")
    target = "" if form.flag("everywhere") else str(broker_id)
    work = ctx.admin.alter_configs({(ResourceType.BROKER, target): {name: value}})
    where = f"broker {target or 'all'} {name}"
    await ctx.change("alter broker settings", where, work)
    return ctx.redirect(f"/cluster/brokers/{broker_id}", f"Changed {name}.")


async def answer_dirs(ctx: Context) -> tuple[LogDirRow, ...]:
    return tuple(_dirs(await ctx.admin.describe_log_dirs()))


async def answer_moves(ctx: Context) -> tuple[MoveRow, ...]:
    try:
        dirs = await ctx.admin.describe_log_dirs()
    except KafkaError:
        dirs = {}
    return tuple(await _moves(ctx, dirs))


async def answer_settings(ctx: Context) -> list[Setting]:
    resource = (ResourceType.BROKER, str(ctx.path_number("broker")))
    return (await ctx.admin.describe_configs([resource]))[resource]


_DIR_COLUMNS = (
    Column("Broker", is_short=True),
    Column("Directory"),
    Column("State"),
    Column("Replicas", is_number=True),
    Column("Size", is_number=True),
    Column("Free", is_number=True, is_optional=True),
    Column("Disk used", is_number=True, is_optional=True),
)

SECTION = Section(
    "Cluster",
    "/cluster",
    routes=(
        get("/cluster", show),
        post("/cluster/reassignment/plan", plan),
        post("/cluster/reassignment", reassign),
        post("/cluster/reassignment/cancel", cancel),
        post("/cluster/election", elect),
        get("/cluster/brokers/{broker:int}", show_broker),
        post("/cluster/brokers/{broker:int}/settings", change_broker),
    ),
    questions=(
        Question("/api/cluster/log-directories", "Log directories.", answer_dirs, tuple[LogDirRow, ...]),
        Question("/api/cluster/reassignments", "Moves in progress.", answer_moves, tuple[MoveRow, ...]),
        Question(
            "/api/cluster/brokers/{broker:int}/settings",
            "Settings of a broker.",
            answer_settings,
            tuple[Setting, ...],
        ),
    ),
)
