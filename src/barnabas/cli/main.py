"""The command's root: what there is, where it is, and the options common to all."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas import __version__
from barnabas.cli.exits import EPILOG
from barnabas.cli.lazy import LazyGroup
from barnabas.core.compiled import CODE

COMMANDS = {
    "start": ("barnabas.cli.start:start", "Start a broker, or a cluster of them."),
    "topic": ("barnabas.cli.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": ("barnabas.cli.produce:produce", "Write lines of standard input to a topic."),
    "consume": ("barnabas.cli.consume:consume", "Print the records of a topic, and follow it."),
    "records": ("barnabas.cli.records:records", "Delete the oldest records of a topic."),
    "group": ("barnabas.cli.group:group", "List, describe and delete groups, and move their offsets."),
    "txn": ("barnabas.cli.txn:txn", "List and describe transactions, and end those that hang."),
    "config": ("barnabas.cli.config:config", "Show and change settings of topics and brokers."),
    "acl": ("barnabas.cli.acl:acl", "Say who may do what: add, list and remove access rules."),
    "quota": ("barnabas.cli.quota:quota", "Show and set quotas of users, client ids and addresses."),
    "token": ("barnabas.cli.token:token", "Make, list, renew and end delegation tokens."),
    "user": ("barnabas.cli.user:user", "Add, list and delete users that log in by SCRAM."),
    "cluster": (
        "barnabas.cli.cluster:cluster",
        "Show the state of the cluster, and empty a broker before it leaves.",
    ),
    "reassign": ("barnabas.cli.reassign:reassign", "Move partitions between brokers."),
    "leader": ("barnabas.cli.leader:leader", "Elect leaders."),
    "zookeeper": ("barnabas.cli.zookeeper:zookeeper", "Run a ZooKeeper for a cluster on this machine."),
    "log": ("barnabas.cli.log:log", "Look into the files of a log."),
    "pipeline": ("barnabas.cli.pipeline:pipeline", "Run data pipelines on Spark, and steer them."),
    "completion": ("barnabas.cli.completion:completion", "Print the completion script of a shell."),
}


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
    help="A broker to begin with; several separated by commas.  [env: BARNABAS_BOOTSTRAP;"
    " default: 127.0.0.1:9092]",
)
@click.option(
    "--command-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="BARNABAS_COMMAND_CONFIG",
    metavar="FILE",
    help="Kafka's client properties: how to reach a secured cluster.  [env: BARNABAS_COMMAND_CONFIG]",
)
def cli(bootstrap: str | None, command_config: Path | None) -> None:
    """Barnabas: an Apache-Kafka-compatible broker and its tools."""


def main() -> None:
    cli(prog_name="barnabas")
