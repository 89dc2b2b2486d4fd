"""Transactions: open ones, hanging ones, and their abort."""

from __future__ import annotations

from starlette.responses import Response

from barnabas.client.admin.transactions import OpenTransaction
from barnabas.console.html.components import Column, badge, card, data_table, empty, note
from barnabas.console.html.elements import Content, a, code, div, p
from barnabas.console.html.figures import duration, known, moment, number
from barnabas.console.pages.confirming import confirmed_form
from barnabas.console.view.rows import TransactionRow
from barnabas.console.web.context import Context
from barnabas.console.web.layout import heading
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.core.ids import TopicPartition

PARTITIONS_SHOWN = 20
_TONES = {"Ongoing": "info", "Hanging": "bad", "PrepareCommit": "warn", "PrepareAbort": "warn"}


async def show(ctx: Context) -> Response:
    finds_hanging = ctx.query.get("hanging") == "true"
    found = await ctx.view.transactions(find_hanging=finds_hanging)
    now_ms = ctx.console.clock.now_ms()
    hanging = [each for each in found if each.is_hanging]
    rest = sorted((each for each in found if not each.is_hanging), key=_order)
    search = a("Look for hanging ones", href="/transactions?hanging=true", class_="button")
    told: Content = None
    if finds_hanging and not hanging:
        told = note("No partition has a transaction that no coordinator knows.", tone="good")
    rows = [_row(each, now_ms) for each in rest]
    table = (
        data_table("Transactions", _COLUMNS, rows)
        if rows
        else empty(
            p(
                "No producer has a transactional id. One that sets transactional.id is shown here,"
                " with the age of its open transaction."
            )
        )
    )
    return ctx.page(
        "Transactions",
        heading("Transactions", search),
        told,
        card("Hanging", _explained(), _hanging(ctx, hanging)) if hanging else None,
        card(None, table),
    )


def _order(row: TransactionRow) -> tuple[bool, str]:
    return (row.started_ms is None, row.transactional_id or "")


def _explained() -> Content:
    return p(
        "A hanging transaction never ends: its partition has it open, and no coordinator knows it. Readers of"
        " committed records wait at its first offset for ever. Aborting writes a marker to that partition.",
        class_="soft",
    )


def _row(row: TransactionRow, now_ms: int) -> tuple[Content, ...]:
    return (
        code(row.transactional_id or ""),
        badge(row.state, _TONES.get(row.state, "plain")),  # type: ignore[arg-type]
        str(row.producer_id),
        known(row.producer_epoch),
        moment(row.started_ms),
        duration(None if row.started_ms is None else max(now_ms - row.started_ms, 0)),
        duration(row.timeout_ms),
        _partitions(row),
    )


def _partitions(row: TransactionRow) -> str:
    shown = ", ".join(f"{topic}-{partition}" for topic, partition in row.partitions[:PARTITIONS_SHOWN])
    more = len(row.partitions) - PARTITIONS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _hanging(ctx: Context, found: list[TransactionRow]) -> Content:
    columns = (
        Column("Partition"),
        Column("Producer id", is_number=True),
        Column("First offset", is_number=True),
        Column("Last record (UTC)", is_optional=True),
        Column("Abort"),
    )
    rows = []
    for each in found:
        ((topic, partition),) = each.partitions
        fields = {
            "topic": topic,
            "partition": str(partition),
            "producer": str(each.producer_id),
            "epoch": str(each.producer_epoch),
            "coordinator_epoch": str(each.coordinator_epoch),
            "start": str(each.start_offset),
        }
        abort = confirmed_form(ctx, "/transactions/abort", "Abort …", "Abort this transaction", fields)
        place = a(f"{topic}-{partition}", href=f"/topics/{topic}/partitions/{partition}")
        rows.append(
            (place, str(each.producer_id), number(each.start_offset), moment(each.started_ms), div(abort))
        )
    return data_table("Hanging transactions", columns, rows)


async def abort(ctx: Context) -> Response:
    form = await ctx.form()
    at = TopicPartition(form.text("topic"), form.number("partition", at_least=0))
    found = OpenTransaction(
        at,
        form.number("producer"),
        form.number("epoch"),
        form.number("coordinator_epoch"),
        form.number("start"),
        0,
    )
    where = f"producer {found.producer_id} in {at}"
    await ctx.change("abort transaction", where, ctx.admin.abort_transaction(found))
    return ctx.redirect("/transactions?hanging=true", f"Aborted the transaction of {where}.")


async def answer(ctx: Context) -> tuple[TransactionRow, ...]:
    return await ctx.view.transactions(find_hanging=ctx.query.get("hanging") == "true")


_COLUMNS = (
    Column("Transactional id"),
    Column("State"),
    Column("Producer id", is_number=True, is_optional=True),
    Column("Epoch", is_number=True, is_optional=True),
    Column("Started (UTC)", is_optional=True),
    Column("Open for", is_number=True),
    Column("Timeout", is_number=True, is_optional=True),
    Column("Partitions"),
)

SECTION = Section(
    "Transactions",
    "/transactions",
    routes=(get("/transactions", show), post("/transactions/abort", abort)),
    questions=(
        Question(
            "/api/transactions",
            "Transactions of all coordinators.",
            answer,
            tuple[TransactionRow, ...],
            (Parameter("hanging", "boolean", "With those that no coordinator knows."),),
        ),
    ),
)
