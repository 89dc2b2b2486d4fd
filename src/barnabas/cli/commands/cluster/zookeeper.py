"""`barnabas zookeeper`: the ZooKeeper that PySpark ships, for a cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from barnabas.cli.support.exit_codes import Failure


@click.group()
def zookeeper() -> None:
    """Run a ZooKeeper for a cluster on this machine."""


@zookeeper.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=2181,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--data-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Data directory.  [default: zookeeper in the broker's default directory]",
)
def start(port: int, host: str, data_dir: Path | None) -> None:
    """Start a standalone ZooKeeper in the foreground.

    It runs from the jars of PySpark and needs Java 17. One line reports that it is ready. SIGTERM and Ctrl-C
    stop it.
    """
    from barnabas.config.derived import default_log_directory  # noqa: PLC0415 - not needed for --help
    from barnabas.node.log_output import configure_logging  # noqa: PLC0415
    from barnabas.processes.zookeeper_member import run_zookeeper  # noqa: PLC0415
    from barnabas.processes.zookeeper_process import CannotRunZooKeeper, ZooKeeperServer, free_port  # noqa: PLC0415

    configure_logging("info")
    directory = (data_dir or default_log_directory() / "zookeeper").expanduser().absolute()
    try:
        run_zookeeper(
            ZooKeeperServer(directory, port or free_port(host), host),
            click.echo,
        )
    except CannotRunZooKeeper as error:
        raise Failure(str(error)) from None
