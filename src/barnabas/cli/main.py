"""Root of the `barnabas` command: its subcommands and the options that they share.

A command's module is imported on its first call, not for the list of commands. The start of a broker must not
pay for the client or for tables, and `--help` should appear at once. So this module holds names and one-line
summaries, and imports the commands later.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from barnabas import __version__
from barnabas.cli.support.exit_codes import EPILOG, INTERRUPTED, Failure
from barnabas.core.compiled import CODE

COMMANDS = {
    "start": ("barnabas.cli.commands.cluster.start:start", "Start a broker or a local cluster."),
    "topic": ("barnabas.cli.commands.data.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": (
        "barnabas.cli.commands.data.produce:produce",
        "Write lines of standard input, or of files, to a topic.",
    ),
    "consume": ("barnabas.cli.commands.data.consume:consume", "Print the records of a topic, and follow it."),
    "perf": (
        "barnabas.cli.commands.data.perf:perf",
        "Measure producing, consuming and the latency between them.",
    ),
    "sql": ("barnabas.cli.commands.data.sql:sql", "Run a query over topics."),
    "records": ("barnabas.cli.commands.data.records:records", "Delete the oldest records of a topic."),
    "group": (
        "barnabas.cli.commands.data.group:group",
        "List, describe and delete groups, and reset their offsets.",
    ),
    "txn": ("barnabas.cli.commands.data.txn:txn", "List and describe transactions, and abort hanging ones."),
    "config": (
        "barnabas.cli.commands.cluster.config:config",
        "Show and change settings of topics, brokers, groups and client metrics.",
    ),
    "acl": ("barnabas.cli.commands.security.acl:acl", "Add, list and remove access rules (ACLs)."),
    "quota": (
        "barnabas.cli.commands.cluster.quota:quota",
        "Show and set quotas of users, client ids and addresses.",
    ),
    "token": (
        "barnabas.cli.commands.security.token:token",
        "Create, list, renew and expire delegation tokens.",
    ),
    "user": ("barnabas.cli.commands.security.user:user", "Add, list and delete SCRAM users."),
    "cluster": (
        "barnabas.cli.commands.cluster.cluster:cluster",
        "Show the state of the cluster, and decommission brokers.",
    ),
    "console": (
        "barnabas.cli.commands.cluster.console:console",
        "Serve a web page that shows a cluster and changes it.",
    ),
    "top": (
        "barnabas.cli.commands.cluster.top:top",
        "Show brokers, topics and groups live: traffic, sizes, lag in records and in time.",
    ),
    "metrics": (
        "barnabas.cli.commands.cluster.metrics:metrics",
        "Print a dashboard and alert rules for the metrics that `start --metrics` serves.",
    ),
    "reassign": ("barnabas.cli.commands.cluster.reassign:reassign", "Move partitions between brokers."),
    "leader": ("barnabas.cli.commands.cluster.leader:leader", "Elect partition leaders."),
    "zookeeper": (
        "barnabas.cli.commands.cluster.zookeeper:zookeeper",
        "Run a ZooKeeper for a cluster on this machine.",
    ),
    "log": ("barnabas.cli.commands.data.log:log", "Dump the files of a log."),
    "pipeline": (
        "barnabas.cli.commands.pipelines.pipeline:pipeline",
        "Run and manage data pipelines on Spark.",
    ),
    "record": (
        "barnabas.cli.commands.testing.record:record",
        "Record what a client and its brokers say to each other, until Ctrl-C.",
    ),
    "replay": (
        "barnabas.cli.commands.testing.record:replay",
        "Replay a recording, and compare the answers.",
    ),
    "completion": ("barnabas.cli.main:completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """Group whose `lazy` maps a command's name to its location (`module:attribute`) and its summary."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C has an exit code of its own; click's is that of a failure."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of a name. Click's own suggestions are from commands that are imported already."""
        name = args[0]
        if name not in self.lazy and not name.startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.lazy, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the interface's name
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        found = self.lazy.get(cmd_name)
        if found is None:
            return None
        module, _, attribute = found[0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.lazy.items()])


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="barnabas", message=f"%(prog)s %(version)s ({CODE})")
@click.option(
    "--bootstrap",
    envvar="BARNABAS_BOOTSTRAP",
    metavar="HOST:PORT",
    help="Bootstrap brokers, separated by commas.  [env: BARNABAS_BOOTSTRAP; default: 127.0.0.1:9092]",
)
@click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="BARNABAS_COMMAND_CONFIG",
    metavar="FILE",
    help="Client properties file, for a secured cluster.  [env: BARNABAS_COMMAND_CONFIG]",
)
def cli(bootstrap: str | None, command_config: Path | None) -> None:
    """Barnabas: an Apache-Kafka-compatible broker and its tools."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(barnabas completion bash)"      in ~/.bashrc
    zsh:   eval "$(barnabas completion zsh)"       in ~/.zshrc
    fish:  barnabas completion fish | source       in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - rarely needed

    kind = get_completion_class(shell)
    assert kind is not None, "click has these three"
    click.echo(kind(ctx.find_root().command, {}, "barnabas", "_BARNABAS_COMPLETE").source())


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def main() -> None:
    """Run the command of this process. A disk that cannot take its output is a failure with one line."""
    try:
        try:
            cli(prog_name="barnabas")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        # The interpreter writes what standard output still holds when it exits, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno != errno.EPIPE:
            Failure(f"cannot write the output: {error.strerror}").show()
        sys.exit(Failure.exit_code)
