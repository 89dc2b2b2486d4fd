"""Protobuf of a topic without a registry: a user gives the `.proto` text, for the own session alone."""

from __future__ import annotations

from starlette.responses import Response

from barnabas.console.formats.bounds import UnusableSchema
from barnabas.console.html.components import card, choice, field, note, text_field
from barnabas.console.html.elements import a, button, code, div, p
from barnabas.console.pages.topic import topic_frame
from barnabas.console.schemas.decoders import Part
from barnabas.console.schemas.given import GIVEN_CHARACTERS_MAX
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.section import Section, get, post

PARTS = (("value", "values"), ("key", "keys"))


async def show(ctx: Context) -> Response:
    name = ctx.path_text("topic")
    await ctx.admin.describe_topics([name])  # an unknown topic is refused here
    part = _part(ctx.query.get("part", "value"))
    text = ctx.console.given.text(ctx.session.id, (name, part))
    message = ctx.console.given.message(ctx.session.id, (name, part))
    state = None
    if message is not None:
        state = note("The ", code(part), " is decoded as ", code(message.full_name), ".", tone="good")
    giving = ctx.form_to(
        f"/topics/{name}/protobuf",
        div(
            choice("part", "It describes the", PARTS, value=part),
            field("message", "Message", placeholder="shop.Order", hint="empty for the first one"),
            class_="row fields",
        ),
        text_field("proto", "Text of the .proto file", value=text, rows=16),
        div(
            button("Decode with it", class_="primary", id="give-proto"),
            a("Back to the messages", href=f"/topics/{name}/messages", class_="button ghost"),
            class_="actions",
        ),
    )
    forgetting = ctx.form_to(
        f"/topics/{name}/protobuf/forget?part={part}", button("Forget it", id="forget-proto")
    )
    lead = p(
        "The schema counts for your session and for this topic. Without one, the format ",
        code("protobuf"),
        " shows the fields of a message by number and type.",
    )
    return topic_frame(
        ctx, name, "Messages", card("Protobuf", lead, state, giving, forgetting if text else None)
    )


async def give(ctx: Context) -> Response:
    """Keep the schema for this session. Nothing in the cluster changes, so a read-only console takes it."""
    name = ctx.path_text("topic")
    await ctx.admin.describe_topics([name])
    form = await ctx.fields()
    part = _part(form.text("part", "value"))
    message = _read(ctx, name, part, form)
    return ctx.redirect(f"/topics/{name}/messages", f"The {part} is decoded as {message} from now on.")


def _read(ctx: Context, name: str, part: Part, form: Form) -> str:
    text = form.raw("proto")
    if not text.strip():
        raise Refused(f"write the text of a .proto file, of at most {GIVEN_CHARACTERS_MAX:,} characters")
    try:
        return ctx.console.given.give(ctx.session.id, (name, part), text, form.text("message")).full_name
    except UnusableSchema as error:
        raise Refused(f"the schema cannot be used: {error}", 422) from None


async def forget(ctx: Context) -> Response:
    await ctx.fields()
    name, part = ctx.path_text("topic"), _part(ctx.query.get("part", "value"))
    ctx.console.given.forget(ctx.session.id, (name, part))
    return ctx.redirect(f"/topics/{name}/protobuf", "Forgotten.")


def _part(text: str) -> Part:
    if text == "key":
        return "key"
    if text == "value":
        return "value"
    raise Refused("a record has a key and a value")


SECTION = Section(
    "Protobuf",
    "/topics",
    routes=(
        get("/topics/{topic}/protobuf", show),
        post("/topics/{topic}/protobuf", give),
        post("/topics/{topic}/protobuf/forget", forget),
    ),
    is_in_navigation=False,
)
