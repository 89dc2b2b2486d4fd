"""One topic: partitions, groups, settings, and what can be done to it."""

from __future__ import annotations

import re
from urllib.parse import urlencode

from starlette.responses import Response

from barnabas.client.admin.topics_and_configs import Setting
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.console.html.components import (
    Column,
    badge,
    card,
    check,
    crumbs,
    data_table,
    empty,
    facts,
    field,
    folded,
    note,
    tabs,
)
from barnabas.console.html.elements import (
    Content,
    Element,
    a,
    button,
    code,
    div,
    element,
    option,
    p,
    small,
    span,
)
from barnabas.console.html.figures import DASH, duration, number, rate, size
from barnabas.console.pages.topics import NEW, TOPIC_SOURCE, health
from barnabas.console.view.rows import GroupQuery, GroupRow, Page, PartitionRow, TopicDetail
from barnabas.console.web.context import Context, Refused
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.core.ids import TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.protocol.offset_numbers import LATEST

GROUPS_SHOWN = 200


def topic_frame(
    ctx: Context, name: str, current: str, *content: Content, actions: Content = None
) -> Response:
    """Page about a topic: its name, its views."""
    base = f"/topics/{name}"
    views = (
        ("Partitions", base),
        ("Messages", f"{base}/messages"),
        ("Statistics", f"{base}/statistics"),
        ("Groups", f"{base}/groups"),
        ("Settings", f"{base}/settings"),
        ("Manage", f"{base}/manage"),
    )
    return ctx.page(
        f"{name}: {current}",
        heading(name, actions, above=crumbs((("Topics", "/topics"),))),
        tabs(views, current),
        *content,
    )


async def show(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    found = await ctx.view.topic(name)
    row = found.row
    summary = card(
        None,
        facts(
            (
                ("Partitions", number(row.partitions)),
                ("Replicas of each", number(row.replication_factor)),
                ("Health", health(row)),
                ("Records", number(row.records)),
                ("Size of the leaders", size(row.size_bytes)),
                ("Written", rate(row.traffic.records_in, " rec")),
                ("Groups", number(row.groups)),
                ("Topic id", code(row.topic_id)),
            )
        ),
    )
    produce = a("Produce", href=f"/topics/{name}/produce", class_="button") if ctx.may_change else None
    table = data_table(
        "Partitions", _PARTITION_COLUMNS, [_partition(name, each) for each in found.partitions]
    )
    return topic_frame(ctx, name, "Partitions", summary, card("Partitions", table), actions=produce)


def _partition(topic: str, row: PartitionRow) -> tuple[Content, ...]:
    known = row.start_offset is not None and row.end_offset is not None
    records = row.end_offset - row.start_offset if known else None  # type: ignore[operator]
    return (
        a(str(row.partition), href=f"/topics/{topic}/partitions/{row.partition}"),
        badge("no leader", "bad") if row.leader_id < 0 else str(row.leader_id),
        _replicas(row),
        number(row.start_offset),
        number(row.end_offset),
        number(records),
        size(row.size_bytes),
        number(row.leader_epoch) if row.leader_epoch >= 0 else DASH,
        a("show", href=f"/topics/{topic}/messages?{urlencode({'partition': row.partition})}"),
    )


def _replicas(row: PartitionRow) -> Content:
    """Replicas in the order of preference, those out of sync marked."""
    made: list[Content] = []
    for index, broker_id in enumerate(row.replicas):
        if index:
            made.append(", ")
        made.append(
            str(broker_id)
            if broker_id in row.isr
            else badge(f"{broker_id} out of sync", "warn", title="not in the ISR")
        )
    return made


# --- groups ---


async def show_groups(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    await ctx.view.topic(name)
    page = await ctx.view.groups(GroupQuery(topic=name, sort="lag", descending=True, limit=GROUPS_SHOWN))
    if not page.rows:
        return topic_frame(ctx, name, "Groups", card(None, empty(p("No group has committed offsets here."))))
    return topic_frame(
        ctx, name, "Groups", card(None, data_table("Groups", GROUP_COLUMNS, map(group_cells, page.rows)))
    )


def group_cells(row: GroupRow) -> tuple[Content, ...]:
    return (
        a(row.group_id, href=f"/group?{urlencode({'id': row.group_id})}"),
        group_state(row.state),
        row.kind,
        number(row.members),
        number(row.topics),
        number(row.lag_records),
        duration(row.lag_ms),
    )


def group_state(state: str) -> Element:
    tones = {"Stable": "good", "Empty": "plain", "Dead": "bad"}
    return badge(state or "unknown", tones.get(state, "warn"))  # type: ignore[arg-type]


GROUP_COLUMNS = (
    Column("Group", sort="name"),
    Column("State", sort="state"),
    Column("Protocol", is_optional=True),
    Column("Members", is_number=True, sort="members", is_optional=True),
    Column("Topics", is_number=True, sort="topics", is_optional=True),
    Column("Lag", is_number=True, sort="lag"),
    Column("Lag in time", is_number=True, sort="time"),
)


# --- settings ---


async def show_settings(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    resource = (ResourceType.TOPIC, name)
    found = (await ctx.admin.describe_configs([resource]))[resource]
    own = [each for each in found if each.source == TOPIC_SOURCE]
    rest = [each for each in found if each not in own]
    changing = f"/topics/{name}/settings" if ctx.may_change else None
    own_table: Element = (
        settings_table("Settings of this topic", own, changing)
        if own
        else empty(p("This topic has no settings of its own: those of the brokers count."))
    )
    form = None
    if changing is not None:
        chosen = next((each for each in found if each.name == ctx.query.get("name")), None)
        form = change_form(ctx, changing, found, chosen)
    return topic_frame(
        ctx, name, "Settings", card("Of this topic", own_table), form,
        card("Of the brokers", settings_table("Settings of the brokers", rest, changing)),
    )  # fmt: skip


def change_form(ctx: Context, action: str, found: list[Setting], chosen: Setting | None) -> Element:
    """Form for one setting; `chosen` is the one that was clicked in the table."""
    hint = "Leave it empty and tick the box to return to the default."
    name = None if chosen is None else chosen.name
    value = None if chosen is None or chosen.is_sensitive else chosen.value
    form = ctx.form_to(
        action,
        div(
            field("name", "Setting", value=name, required=True, list="setting-names", maxlength=200),
            field("value", "Value", value=value, hint=hint, autofocus=chosen is not None),
            class_="row fields",
        ),
        check("unset", "Return to the default"),
        button("Change", class_="primary"),
        setting_names([each.name for each in found if not each.is_read_only]),
    )
    return card("Change a setting", form, id_="change")


def setting_names(names: list[str]) -> Element:
    return element("datalist", [option(value=each) for each in names], id="setting-names")


def settings_table(name: str, found: list[Setting], changing: str | None = None) -> Element:
    """Settings with meaning and origin. `changing` is the page with the form that changes them."""
    columns = (Column("Setting"), Column("Value"), Column("Origin", is_optional=True))
    return data_table(name, columns, [_setting(each, changing) for each in found])


def _setting(found: Setting, changing: str | None) -> tuple[Content, ...]:
    value: Content = (
        code(found.value, class_="long") if found.value not in (None, "") else span(DASH, class_="soft")
    )
    if found.is_sensitive:
        value = badge("secret")
    meaning = meaning_of(found.name)
    shown: Content = code(found.name)
    if changing is not None and not found.is_read_only:
        shown = a(shown, href=f"{changing}?{urlencode({'name': found.name})}#change", title="Change it")
    return (
        (shown, small(meaning, class_="hint") if meaning else None),
        (value, _plain(found)),
        (_ORIGINS.get(found.source, found.source), " ", badge("read-only") if found.is_read_only else None),
    )


def _plain(found: Setting) -> Content:
    """The value in larger units, where it has some."""
    text = found.value or ""
    if _WHOLE_NUMBER.fullmatch(text) is None:
        return None
    value = int(text)
    if value == LONG_MAX or (value == -1 and found.name in UNLIMITED):
        return small("no limit", class_="hint")
    if found.name.endswith(".ms") and value >= 1_000 and value < 2**62:
        return small(duration(value), class_="hint")
    if found.name.endswith(".bytes") and value >= 1_024 and value < 2**62:
        return small(size(value), class_="hint")
    return None


def meaning_of(name: str) -> str:
    row = TOPIC_KEYS.get(name) or BROKER_KEYS.get(name)
    return row.doc if row is not None else ""


LONG_MAX = 2**63 - 1
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
"""`str.isdigit` takes a superscript for a digit, which `int` does not."""
UNLIMITED = frozenset({"retention.ms", "retention.bytes", "log.retention.ms", "log.retention.bytes"})
_ORIGINS = {
    "topic": "this topic",
    "dynamic-broker": "this broker, at run time",
    "dynamic-default-broker": "all brokers, at run time",
    "static-broker": "the broker's properties",
    "default": "built in",
}


async def change_settings(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    form = await ctx.form()
    key, value = form.text("name"), form.text("value")
    if form.flag("unset"):
        wanted: dict[str, str | None] = {key: None}
        said = f"{key} returned to its default."
    else:
        if not value:
            raise Refused("the value is missing; tick the box to return to the default")
        wanted = {key: value}
        said = f"{key} is {value} now."
    work = ctx.admin.alter_configs({(ResourceType.TOPIC, name): wanted})
    await ctx.change("alter topic settings", f"{name} {key}={'' if wanted[key] is None else value}", work)
    return ctx.redirect(f"/topics/{name}/settings", said)


# --- manage ---


async def show_manage(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    found = await ctx.view.topic(name)
    if not ctx.may_change:
        return topic_frame(ctx, name, "Manage", note("This console is read-only."))
    return topic_frame(
        ctx,
        name,
        "Manage",
        card(
            "A topic like this one",
            p("A new, empty topic with the partitions, replicas and settings of this one."),
            a("New topic like this one", href=f"{NEW}?{urlencode({'like': name})}", class_="button"),
        ),
        card("Add partitions", _add_form(ctx, found)),
        card("Delete records", _records_form(ctx, found)),
        card("Delete the topic", _delete_form(ctx, found)),
    )


def _add_form(ctx: Context, found: TopicDetail) -> Element:
    name = found.row.name
    return ctx.form_to(
        f"/topics/{name}/partitions",
        p("Records of a key may go to another partition afterwards. Partitions cannot be taken away."),
        div(
            field(
                "total",
                "Partitions afterwards",
                kind="number",
                value=found.row.partitions + 1,
                min=found.row.partitions + 1,
                required=True,
            ),
            button("Add partitions", class_="primary"),
            class_="row",
        ),
    )


def _records_form(ctx: Context, found: TopicDetail) -> Element:
    name = found.row.name
    return folded(
        "Delete the oldest records …",
        ctx.form_to(
            f"/topics/{name}/records/delete",
            p("Deletes the records before an offset of one partition, or all records of all partitions."),
            div(
                field("partition", "Partition", kind="number", min=0, hint="Empty means all partitions."),
                field(
                    "before", "Before offset", kind="number", min=0, hint="Empty means the end: all records."
                ),
                class_="row fields",
            ),
            field("confirm", "Type the name of the topic", required=True, autocomplete="off"),
            button("Delete records", class_="danger"),
        ),
        class_="folded danger",
    )


def _delete_form(ctx: Context, found: TopicDetail) -> Element:
    name = found.row.name
    reads = f" {found.row.groups} groups read it." if found.row.groups else ""
    return folded(
        "Delete this topic …",
        ctx.form_to(
            f"/topics/{name}/delete",
            p(f"Its {number(found.row.records)} records and the offsets of its groups are deleted.{reads}"),
            field("confirm", "Type the name of the topic", required=True, autocomplete="off"),
            button("Delete the topic", class_="danger", id="delete-topic"),
        ),
        class_="folded danger",
    )


async def add_partitions(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    total = (await ctx.form()).number("total", at_least=1)
    await ctx.change("add partitions", f"{name} to {total}", ctx.admin.create_partitions({name: total}))
    return ctx.redirect(f"/topics/{name}", f"{name} has {total} partitions now.")


async def delete_records(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    form = await ctx.form()
    _confirmed(form.text("confirm"), name)
    detail = await ctx.view.topic(name)
    if form.text("partition"):
        numbers = [form.number("partition", at_least=0)]
    elif form.text("before"):
        raise Refused("an offset belongs to one partition: name the partition, or leave the offset out")
    else:
        numbers = [each.partition for each in detail.partitions]
    partitions = [TopicPartition(name, each) for each in numbers]
    if form.text("before"):
        before = {partitions[0]: form.number("before", at_least=0)}
    else:
        before = await ctx.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    where = ", ".join(f"{at} before {offset}" for at, offset in before.items())
    await ctx.change("delete records", where, ctx.admin.delete_records(before))
    return ctx.redirect(f"/topics/{name}", f"Deleted records of {name}.")


async def delete(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    _confirmed((await ctx.form()).text("confirm"), name)
    await ctx.change("delete topic", name, ctx.admin.delete_topics([name]))
    return ctx.redirect("/topics", f"Deleted topic {name}.")


def _confirmed(typed: str, name: str) -> None:
    if typed != name:
        raise Refused(f"nothing was done: the name typed is not {name}")


# --- the same as JSON ---


async def answer(ctx: Context) -> TopicDetail:
    return await ctx.view.topic(ctx.path_text("topic"))


async def answer_groups(ctx: Context) -> Page[GroupRow]:
    limit = ctx.query_number("limit", GROUPS_SHOWN, at_least=1, at_most=1_000)
    return await ctx.view.groups(
        GroupQuery(topic=ctx.path_text("topic"), sort="lag", descending=True, limit=limit)
    )


async def answer_settings(ctx: Context) -> list[Setting]:
    resource = (ResourceType.TOPIC, ctx.path_text("topic"))
    return (await ctx.admin.describe_configs([resource]))[resource]


_PARTITION_COLUMNS = (
    Column("Partition", is_short=True),
    Column("Leader"),
    Column("Replicas"),
    Column("First offset", is_number=True, is_optional=True),
    Column("End offset", is_number=True),
    Column("Records", is_number=True, is_optional=True),
    Column("Size", is_number=True),
    Column("Epoch", is_number=True, is_optional=True),
    Column("Messages", is_optional=True),
)

_BASE = "/topics/{topic}"
SECTION = Section(
    "Topic",
    "/topics",
    routes=(
        get(_BASE, show),
        get(f"{_BASE}/groups", show_groups),
        get(f"{_BASE}/settings", show_settings),
        post(f"{_BASE}/settings", change_settings),
        get(f"{_BASE}/manage", show_manage),
        post(f"{_BASE}/partitions", add_partitions),
        post(f"{_BASE}/records/delete", delete_records),
        post(f"{_BASE}/delete", delete),
    ),
    questions=(
        Question("/api/topics/{topic}", "One topic with its partitions.", answer, TopicDetail),
        Question(
            "/api/topics/{topic}/groups",
            "Groups that have offsets in the topic, the largest lag first.",
            answer_groups,
            Page[GroupRow],
            (Parameter("limit", "integer", "Rows, at most 1,000."),),
        ),
        Question(
            "/api/topics/{topic}/settings", "Settings of the topic.", answer_settings, tuple[Setting, ...]
        ),
    ),
    is_in_navigation=False,
)
