"""`barnabas acl`: add, list, remove. Rules and shortcuts are those of `kafka-acls`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.core.errors import InvalidRequest
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.vocabulary import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    from_text,
)

_RESOURCES = (
    ("topic", ResourceType.TOPIC),
    ("group", ResourceType.GROUP),
    ("transactional_id", ResourceType.TRANSACTIONAL_ID),
    ("delegation_token", ResourceType.DELEGATION_TOKEN),
    ("user_principal", ResourceType.USER),
)

PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
"""Operations that a producer needs, and a consumer in a group."""

Rights = set[tuple[ResourcePattern, Operation]]


@click.group()
def acl() -> None:
    """Add, list and remove access rules (ACLs)."""


def _resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, _ in reversed(_RESOURCES):
        word = name.replace("_", "-")
        command = click.option(
            f"--{word}", name, multiple=True, metavar="NAME", help=f"Name of the {word}; * means all."
        )(command)
    command = click.option("--cluster", is_flag=True, help="The cluster as the resource.")(command)
    return bootstrap_option(command)


def _pattern_option(*kinds: PatternType) -> Callable[..., Any]:
    return click.option(
        "--resource-pattern-type",
        "pattern",
        type=click.Choice([kind.name.lower() for kind in kinds], case_sensitive=False),
        default=PatternType.LITERAL.name.lower()
        if kinds[0] is PatternType.LITERAL
        else kinds[0].name.lower(),
        show_default=True,
        help="How the name matches resources.",
    )


def _principal_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for principals, hosts and operations; each may be given several times."""
    for option, help_ in (
        ("--deny-host", "Host that --deny-principal applies to; default *, all hosts."),
        ("--allow-host", "Host that --allow-principal applies to; default *, all hosts."),
        ("--deny-principal", "Deny this user, as User:NAME; User:* means all users."),
        ("--allow-principal", "Allow this user, as User:NAME; User:* means all users."),
    ):
        metavar = "HOST" if option.endswith("host") else "PRINCIPAL"
        command = click.option(option, multiple=True, metavar=metavar, help=help_)(command)
    command = click.option(
        "--operation", "operations", multiple=True, metavar="OPERATION", help="Default: All."
    )(command)
    command = click.option("--idempotent", is_flag=True, help="With --producer: add IdempotentWrite.")(
        command
    )
    command = click.option(
        "--consumer", is_flag=True, help="Operations of a consumer on its topic and group."
    )(command)
    return click.option("--producer", is_flag=True, help="Operations of a producer on its topic.")(command)


@acl.command(short_help="Add rules for principals, hosts, operations and resources.")
@_principal_options
@_pattern_option(PatternType.LITERAL, PatternType.PREFIXED)
@_resource_options
def add(bootstrap: Bootstrap, **options: Any) -> None:
    """Add rules: each operation on each resource for each principal from each host."""
    bindings = _bindings(options)
    run(bootstrap, lambda admin: admin.create_acls(bindings))
    for binding in bindings:
        click.echo(f"added: {binding}")


@acl.command(short_help="Remove the given rules, or all rules of the resources.")
@_principal_options
@_pattern_option(PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY, PatternType.MATCH)
@click.option("--force", is_flag=True, help="Do not ask for confirmation.")
@_resource_options
def remove(bootstrap: Bootstrap, force: bool, **options: Any) -> None:
    """Remove the given rules, or, without a principal, all rules of the resources."""
    has_principals = options["allow_principal"] or options["deny_principal"]
    if has_principals:
        filters = [
            AclFilter(*pattern, rule.principal, rule.host, rule.operation, rule.permission)
            for pattern, rule in _bindings(options, is_checked=False)
        ]
    else:
        filters = [AclFilter(*pattern) for pattern in _patterns(options)]
        if not filters:
            raise click.UsageError("name a resource: --topic, --group, --cluster, …")
    if not force and not has_principals:
        click.confirm("Remove all rules of these resources?", abort=True)
    gone = run(bootstrap, lambda admin: admin.delete_acls(filters))
    for binding in gone:
        click.echo(f"removed: {binding}")
    if not gone:
        click.echo("no rule matches")


@acl.command(name="list")
@click.option(
    "--principal", "principals", multiple=True, metavar="PRINCIPAL", help="Only rules of this principal."
)
@_pattern_option(PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED)
@json_option
@_resource_options
def list_(bootstrap: Bootstrap, as_json: bool, principals: tuple[str, ...], **options: Any) -> None:
    """List the rules. `match` shows all that apply to a resource, prefixes and * included."""
    wanted = [AclFilter(*pattern) for pattern in _patterns(options)] or [AclFilter()]
    filters = [each._replace(principal=principal) for each in wanted for principal in principals or (None,)]
    found = run(bootstrap, lambda admin: admin.describe_acls(filters))
    rows = [
        (
            pattern.resource_type.shown_as,
            pattern.name,
            pattern.pattern_type.name.lower(),
            rule.principal,
            rule.host,
            rule.operation.shown_as,
            rule.permission.shown_as,
        )
        for pattern, rule in found
    ]
    columns = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _patterns(options: dict[str, Any]) -> list[ResourcePattern]:
    pattern_type = from_text(PatternType, options["pattern"])
    patterns = [
        ResourcePattern(
            kind,
            name,
            PatternType.LITERAL
            if name == WILDCARD and pattern_type is PatternType.PREFIXED
            else pattern_type,
        )
        for option, kind in _RESOURCES
        for name in options[option]
    ]
    if options["cluster"]:
        patterns.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    return patterns


def _bindings(options: dict[str, Any], *, is_checked: bool = True) -> list[AclBinding]:
    rights = _rights(options)
    bindings = [
        AclBinding(pattern, AccessRule(principal, host, operation, permission))
        for pattern, operation in sorted(rights)
        for permission, principal, host in _principals(options)
    ]
    if not bindings:
        raise click.UsageError("name a principal: --allow-principal or --deny-principal User:NAME")
    try:
        for binding in bindings if is_checked else ():
            binding.check()
    except InvalidRequest as error:
        raise click.UsageError(error.message) from None
    return bindings


def _principals(options: dict[str, Any]) -> Iterator[tuple[Permission, str, str]]:
    for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY)):
        for principal in options[f"{word}_principal"]:
            for host in options[f"{word}_host"] or (WILDCARD,):
                yield permission, principal, host


def _rights(options: dict[str, Any]) -> Rights:
    patterns = _patterns(options)
    if options["producer"] or options["consumer"]:
        return _of_a_client(options, patterns)
    if not patterns:
        raise click.UsageError("name a resource: --topic, --group, --cluster, …")
    try:
        operations = [from_text(Operation, each) for each in options["operations"]] or [Operation.ALL]
    except InvalidRequest as error:
        raise click.UsageError(error.message) from None
    for pattern in patterns:
        for operation in operations:
            if operation is not Operation.ALL and operation not in OPERATIONS[pattern.resource_type]:
                known = ", ".join(each.shown_as for each in OPERATIONS[pattern.resource_type])
                kind = pattern.resource_type.shown_as
                raise click.UsageError(f"a {kind} has no operation {operation.shown_as}; it has {known}, All")
    return {(pattern, operation) for pattern in patterns for operation in operations}


def _of_a_client(options: dict[str, Any], patterns: list[ResourcePattern]) -> Rights:
    kinds = {pattern.resource_type for pattern in patterns}
    if options["operations"]:
        raise click.UsageError("--producer and --consumer exclude --operation: they set the operations")
    if ResourceType.TOPIC not in kinds:
        raise click.UsageError("--producer and --consumer need a --topic")
    if options["consumer"] and ResourceType.GROUP not in kinds:
        raise click.UsageError("--consumer needs a --group")
    rights: Rights = set()
    for is_wanted, needs in ((options["producer"], PRODUCER), (options["consumer"], CONSUMER)):
        if is_wanted:
            rights |= {
                (pattern, operation)
                for pattern in patterns
                for operation in needs.get(pattern.resource_type, ())
            }
    if options["producer"] and options["idempotent"]:
        rights.add((ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE))
    return rights
