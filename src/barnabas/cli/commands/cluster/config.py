"""`barnabas config`: settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

import click

from barnabas.cli.support.arguments import parse_pairs
from barnabas.cli.support.completion import complete_key, complete_topic
from barnabas.cli.support.exit_codes import NotFound
from barnabas.cli.support.output import json_option, print_json, print_table
from barnabas.cli.support.session import Bootstrap, bootstrap_option, run
from barnabas.client.admin.topics_and_configs import Setting
from barnabas.protocol.config_numbers import ResourceType

EVERY_BROKER = "default"
"""Instead of a broker id: the dynamic defaults of all brokers."""

KINDS = {
    "topic": ResourceType.TOPIC,
    "broker": ResourceType.BROKER,
    "group": ResourceType.GROUP,
    "client-metrics": ResourceType.CLIENT_METRICS,
}

_kind = click.argument("kind", type=click.Choice(list(KINDS)))
_name = click.argument("name", shell_complete=complete_topic)


@click.group()
def config() -> None:
    """Show and change settings of topics, brokers, groups and client metrics."""


@config.command(short_help="Show the settings of a topic, broker, group or subscription.")
@_kind
@_name
@click.argument("keys", nargs=-1, shell_complete=complete_key)
@click.option("--all", "everything", is_flag=True, help="Include settings with their default value.")
@json_option
@bootstrap_option
def get(
    kind: str, name: str, keys: tuple[str, ...], everything: bool, as_json: bool, bootstrap: Bootstrap
) -> None:
    """Show the settings of a topic, broker, group or client metrics subscription.

    They are `topic NAME`, `broker ID`, `broker default`, `group NAME` and `client-metrics NAME`. One KEY
    prints its value alone. Without a KEY the settings that differ from their defaults are shown.
    """
    resource = _resource(kind, name)
    found = run(bootstrap, lambda admin: admin.describe_configs([resource], keys or None))[resource]
    for key in set(keys) - {each.name for each in found}:
        raise NotFound(f"{kind} {name} has no setting {key}")
    shown = [each for each in found if keys or everything or not each.is_default]
    if as_json:
        print_json({each.name: {"value": each.value, "source": each.source} for each in shown})
    elif len(keys) == 1:
        click.echo(_value(found[0]))
    else:
        print_table(("key", "value", "source"), [(each.name, _value(each), each.source) for each in shown])


@config.command()
@click.argument("word", default="")
@json_option
def keys(word: str, as_json: bool) -> None:
    """Explain all configuration keys, or those with WORD in their name. No broker is asked."""
    from barnabas.config.definitions import SECTIONS  # noqa: PLC0415 - only this command needs the definitions

    shown = [row for _, rows in SECTIONS for row in rows if word in row.name]
    if not shown:
        raise NotFound(f"no key has {word!r} in its name")
    if as_json:
        print_json({row.name: {"default": row.default, "doc": row.doc} for row in shown})
    else:
        rows = [(row.name, row.render(row.default) or "unset", row.doc) for row in shown]
        print_table(("key", "default", "what it does"), rows)


@config.command(name="set", short_help="Change settings of a topic, broker, group or subscription.")
@_kind
@_name
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_key)
@click.option("--delete", "removals", multiple=True, metavar="KEY", help="Return a setting to its default.")
@bootstrap_option
def set_(
    kind: str, name: str, pairs: tuple[str, ...], removals: tuple[str, ...], bootstrap: Bootstrap
) -> None:
    """Change settings of a topic, broker, group or client metrics subscription.

    They are `topic NAME`, `broker ID`, `broker default`, `group NAME` and `client-metrics NAME`. With
    `client-metrics all metrics=* interval.ms=10000`, clients report their metrics (KIP-714).
    """
    changes = parse_pairs(pairs, "KEY=VALUE")
    if not changes and not removals:
        raise click.UsageError("nothing to change: give KEY=VALUE or --delete KEY")
    resource = _resource(kind, name)
    run(bootstrap, lambda admin: admin.alter_configs({resource: {**changes, **dict.fromkeys(removals)}}))
    click.echo(f"changed {kind} {name}")


def _resource(kind: str, name: str) -> tuple[ResourceType, str]:
    if kind != "broker":
        return KINDS[kind], name
    if name != EVERY_BROKER and not name.isdecimal():
        raise click.BadParameter(f"{name!r} is neither a broker id nor {EVERY_BROKER!r}", param_hint="NAME")
    return ResourceType.BROKER, "" if name == EVERY_BROKER else name


def _value(setting: Setting) -> str:
    if setting.is_sensitive:
        return "(hidden)"
    return "" if setting.value is None else setting.value
