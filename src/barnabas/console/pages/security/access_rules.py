"""Access rules (ACLs): which principal may do what to which resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from starlette.responses import Response

from barnabas.console.html.components import (
    Column,
    badge,
    card,
    choice,
    data_table,
    empty,
    field,
    folded,
    note,
)
from barnabas.console.html.elements import Content, Element, button, code, div, form, input_, p
from barnabas.console.html.figures import mono
from barnabas.console.pages.security import ACCESS_RULES, security_page
from barnabas.console.web.context import Context, Form, Refused
from barnabas.console.web.section import Parameter, Question, Section, get, post
from barnabas.core.errors import InvalidRequest, SecurityDisabled
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.vocabulary import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Word,
)

W = TypeVar("W", bound=Word)

ROWS_MAX: Final = 1_000
_LEAD: Final = "A DENY rule wins over every ALLOW rule. Without a rule only super users have access."


@dataclass(frozen=True, slots=True)
class RuleRow:
    principal: str
    permission: str
    operation: str
    resource_type: str
    resource: str
    pattern: str
    host: str

    @classmethod
    def of(cls, binding: AclBinding) -> RuleRow:
        (resource_type, name, pattern), (principal, host, operation, permission) = binding
        return cls(principal, permission.name, operation.name, resource_type.name, name, pattern.name, host)


async def _rules(ctx: Context) -> list[AclBinding]:
    """Rules whose principal or resource contains the searched text."""
    search = ctx.query.get("search", "").strip()
    found = await ctx.admin.describe_acls()
    wanted = [each for each in found if search in each.rule.principal or search in each.pattern.name]
    return sorted(wanted, key=lambda each: (each.pattern, each.rule))


async def show(ctx: Context) -> Response:
    try:
        rules = await _rules(ctx)
    except SecurityDisabled:
        said = "The brokers have no authorizer, so every client may do everything."
        hint = (
            "Set ",
            code("authorizer.class.name"),
            ", or start with ",
            code("barnabas start --secure"),
            ".",
        )
        return security_page(ctx, "Access rules", _LEAD, card(None, empty(p(said), p(*hint))))
    search = ctx.query.get("search", "").strip()
    searching = form(
        div(
            input_(
                type="search",
                name="search",
                value=search,
                placeholder="Search principals and resources  ( / )",
                aria_label="Search principals and resources",
                maxlength=249,
            ),
            class_="search",
        ),
        button("Search", class_="hidden"),
        method="get",
        action=ACCESS_RULES,
        class_="row",
    )
    return security_page(ctx, "Access rules", _LEAD, card(None, searching, _table(ctx, rules)), _adding(ctx))


def _table(ctx: Context, rules: list[AclBinding]) -> Content:
    if not rules:
        return empty(p("There is no such rule."))
    rows = [_row(ctx, each) for each in rules[:ROWS_MAX]]
    more = note(f"The first {ROWS_MAX:,} of {len(rules):,} rules. Search for the others.")
    return (data_table("Access rules", _COLUMNS, rows), more if len(rules) > ROWS_MAX else None)


def _row(ctx: Context, binding: AclBinding) -> tuple[Content, ...]:
    row = RuleRow.of(binding)
    prefix = " (prefix)" if binding.pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        mono(row.principal),
        badge(row.permission, "bad" if row.permission == "DENY" else "good"),
        row.operation,
        (f"{row.resource_type} ", mono(row.resource), prefix),
        mono(row.host),
        _removing(ctx, row) if ctx.may_change else None,
    )


def _removing(ctx: Context, row: RuleRow) -> Element:
    fields = [input_(type="hidden", name=name, value=getattr(row, name)) for name in _FIELDS]
    confirm = button("Remove this rule", class_="danger small")
    return folded("Remove …", ctx.form_to(f"{ACCESS_RULES}/remove", fields, confirm), class_="folded danger")


def _adding(ctx: Context) -> Element | None:
    if not ctx.may_change:
        return None
    made = ctx.form_to(
        f"{ACCESS_RULES}/add",
        div(
            field("principal", "Principal", value="User:", required=True, hint="User:* means everyone"),
            choice("permission", "Permission", _choices(Permission), value="ALLOW"),
            choice("operation", "Operation", _choices(Operation), value="READ"),
            class_="row fields",
        ),
        div(
            choice("resource_type", "Resource", _choices(ResourceType), value="TOPIC"),
            field("resource", "Name", hint=f"{WILDCARD} means all; empty for the cluster"),
            choice(
                "pattern",
                "Matches",
                [("LITERAL", "this name"), ("PREFIXED", "names that begin so")],
                value="LITERAL",
            ),
            field("host", "Host", value=WILDCARD, hint="an address, or * for all"),
            class_="row fields",
        ),
        button("Add the rule", class_="primary", id="add-rule"),
    )
    return card("Add a rule", made)


def _choices(words: type[Word]) -> list[tuple[str, str]]:
    return [(each.name, each.name) for each in words if each.is_definite]


# --- changes ---


def _binding(form: Form) -> AclBinding:
    resource_type = _word(form, "resource_type", ResourceType)
    name = form.text("resource") or (CLUSTER_NAME if resource_type is ResourceType.CLUSTER else "")
    return AclBinding(
        ResourcePattern(resource_type, name, _word(form, "pattern", PatternType)),
        AccessRule(
            form.text("principal"),
            form.text("host", WILDCARD),
            _word(form, "operation", Operation),
            _word(form, "permission", Permission),
        ),
    )


def _check(binding: AclBinding) -> None:
    """Refuse a new rule that could never take effect."""
    try:
        binding.check()
    except InvalidRequest as error:
        raise Refused(str(error)) from None
    kind, operation = binding.pattern.resource_type, binding.rule.operation
    if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
        fitting = ", ".join(each.name for each in OPERATIONS[kind])
        raise Refused(f"{operation.name} does not apply to {kind.name}; these do: ALL, {fitting}")


def _word(form: Form, name: str, words: type[W]) -> W:
    text = form.text(name)
    if text not in words.__members__:
        raise Refused(f"{name} is one of {', '.join(each.name for each in words if each.is_definite)}")
    return words[text]


async def add(ctx: Context) -> Response:
    binding = _binding(await ctx.form())
    _check(binding)
    await ctx.change("add access rule", str(binding), ctx.admin.create_acls([binding]))
    return ctx.redirect(ACCESS_RULES, f"Added: {binding}.")


async def remove(ctx: Context) -> Response:
    (resource_type, name, pattern), (principal, host, operation, permission) = binding = _binding(
        await ctx.form()
    )
    wanted = AclFilter(resource_type, name, pattern, principal, host, operation, permission)
    gone = await ctx.change("remove access rule", str(binding), ctx.admin.delete_acls([wanted]))
    if not gone:
        return ctx.redirect(ACCESS_RULES, f"There was no such rule: {binding}.", is_failure=True)
    return ctx.redirect(ACCESS_RULES, f"Removed: {binding}.")


async def answer(ctx: Context) -> list[RuleRow]:
    return [RuleRow.of(each) for each in await _rules(ctx)]


_FIELDS: Final = ("principal", "permission", "operation", "resource_type", "resource", "pattern", "host")
_COLUMNS: Final = (
    Column("Principal"),
    Column("Permission"),
    Column("Operation"),
    Column("Resource"),
    Column("Host", is_optional=True),
    Column(""),
)

SECTION = Section(
    "Security",
    ACCESS_RULES,
    routes=(
        get(ACCESS_RULES, show),
        post(f"{ACCESS_RULES}/add", add),
        post(f"{ACCESS_RULES}/remove", remove),
    ),
    questions=(
        Question(
            "/api/access",
            "Access rules.",
            answer,
            tuple[RuleRow, ...],
            (Parameter("search", "string", "Text that the principal or the resource contains."),),
        ),
    ),
)
