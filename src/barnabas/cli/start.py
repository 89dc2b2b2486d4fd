"""`barnabas start`: from a properties file and options to a running broker, or to several.

Nothing of the client, nor anything that prints tables, is imported here: the time to the
ready line is a feature.
"""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.exits import INTERRUPTED, Failure, InvalidSettings
from barnabas.cli.pairs import parse_pairs
from barnabas.config.derived import SECURED, log_directories
from barnabas.config.properties import read_properties
from barnabas.core.endpoints import PORT_MAX, Endpoint
from barnabas.core.errors import InvalidConfig
from barnabas.core.extras import install_command
from barnabas.node.memory import collect_seldom

if TYPE_CHECKING:
    from barnabas.cli.secure import Secured
    from barnabas.config.broker_config import BrokerConfig

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


@click.command()
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A properties file, as Apache Kafka has it.",
)
@click.option("--data-dir", metavar="DIR", help="Where to keep the logs (log.dirs).")
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME://HOST:PORT",
    help="Where to listen (listeners), e.g. PLAINTEXT://127.0.0.1:9093; may be given several times.",
)
@click.option("--broker-id", metavar="N", help="The id of this broker (broker.id).")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,…/CHROOT|local",
    help="The ZooKeeper of the cluster (zookeeper.connect); `local` runs one beside the broker.",
)
@click.option(
    "--zookeeper-auth",
    envvar="BARNABAS_ZOOKEEPER_AUTH",
    metavar="USER:PASSWORD",
    help="Credentials for ZooKeeper (zookeeper.auth).  [env: BARNABAS_ZOOKEEPER_AUTH]",
)
@click.option(
    "--brokers",
    metavar="N",
    type=click.IntRange(1, 100),
    help="Run a cluster of N brokers, ids 1 to N, on as many ports from the listener's on.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any key (`barnabas config keys` explains them); may be given often, and wins over all else.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS, passwords and access rules, on certificates and users of its own, which are made once.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics in the Prometheus format there.")
def start(
    config_file: Path | None,
    data_dir: str | None,
    listeners: tuple[str, ...],
    broker_id: str | None,
    zookeeper: str | None,
    zookeeper_auth: str | None,
    brokers: int | None,
    settings: tuple[str, ...],
    secure: bool,
    metrics: str | None,
) -> None:
    """Start a broker, or a cluster of them.

    With no options it listens on 127.0.0.1:9092 and keeps its data in ~/.local/share/barnabas
    (under XDG_DATA_HOME if that is set).

    With --brokers it runs a process a broker, with its data in ~/.local/share/barnabas-cluster, and a
    ZooKeeper unless --zookeeper names one; starts again what ends unexpectedly; and stops them all in good
    order.

    With --secure it listens on 127.0.0.1:9093 (SASL_SSL), keeps its data in a home of its own
    (barnabas-secure, barnabas-cluster-secure), and says how to log in.
    """
    properties = {} if config_file is None else _read(config_file)
    if data_dir is not None:
        properties["log.dirs"] = data_dir
    if listeners:
        properties["listeners"] = ",".join(listeners)
    if broker_id is not None:
        properties["broker.id"] = broker_id
    if zookeeper is not None:
        properties["zookeeper.connect"] = zookeeper
    if zookeeper_auth is not None:
        properties["zookeeper.auth"] = zookeeper_auth
    properties |= parse_pairs(settings, "--set")
    metrics_address = None if metrics is None else _parse_address(metrics)

    from barnabas.config.broker_config import BrokerConfig  # noqa: PLC0415 - not needed for --help

    try:
        secured = _secured(properties, is_cluster=brokers is not None) if secure else None
        if secured is not None:
            properties = secured.properties
        elif config_file is None:
            _refuse_to_open(properties)
        if brokers is not None:
            sys.exit(_run_cluster(properties, brokers, metrics_address, secured))
        config = BrokerConfig.load(properties)
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None

    sys.exit(_run(config, metrics_address, secured))


def _secured(properties: dict[str, str], *, is_cluster: bool) -> Secured:
    try:
        from barnabas.cli.secure import Secured  # noqa: PLC0415 - an extra is needed for it
    except ImportError as error:
        raise InvalidSettings(
            f"--secure needs {error.name}: install it with {install_command('security')}"
        ) from None
    return Secured.of(properties, is_cluster=is_cluster)


def _refuse_to_open(properties: dict[str, str]) -> None:
    """What was secured is served in the clear only to who says so in a file of their own."""
    directory = log_directories({name: properties.get(name) for name in ("log.dirs", "log.dir")})[0]
    if (directory / SECURED).exists():
        raise InvalidConfig(f"{directory} was made by --secure: start it with --secure")


def _run_cluster(
    properties: dict[str, str], brokers: int, metrics_address: Endpoint | None, secured: Secured | None
) -> int:
    from barnabas.config.broker_config import BrokerConfig  # noqa: PLC0415
    from barnabas.node.local_cluster import ClusterFailed, LocalCluster  # noqa: PLC0415

    users = None if secured is None else secured.home.first_users
    cluster = LocalCluster(properties, brokers, metrics_address, first_users=users)

    def announce(line: str) -> None:
        click.echo(line)
        if secured is not None:
            configs = [BrokerConfig.load(each) for each in cluster.properties.values()]
            click.echo("\n".join(secured.welcome(configs)))

    try:
        cluster.run(announce, _say)
    except ClusterFailed as error:
        raise Failure(_ERRNO.sub("", str(error))) from None
    return 0


def _say(name: str, line: str) -> None:
    """What a process of the cluster says, with who says it."""
    click.echo(f"[{name}] {line}", err=True)


def _run(config: BrokerConfig, metrics_address: Endpoint | None, secured: Secured | None) -> int:
    # Imported here because only a sound configuration needs the broker.
    collect_seldom()
    from barnabas.cluster.coordination import StoreLocked  # noqa: PLC0415
    from barnabas.node.main import StartupFailed, run  # noqa: PLC0415

    welcome: list[str] = []
    try:
        if secured is not None:
            welcome = secured.prepare(config)
        return run(config, metrics_address, welcome)
    except StartupFailed as error:
        if isinstance(error.__cause__, InvalidConfig):
            raise InvalidSettings(error.__cause__.message) from None
        message = _ERRNO.sub("", str(error))
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE:
            option = "--listener" if message.startswith("cannot listen") else "--metrics"
            message += f"; stop what uses it, or choose another {option}"
        raise Failure(message) from None
    except KeyboardInterrupt:
        # The second Ctrl-C: whoever sends it does not want to wait.
        click.echo("barnabas: stopped at once; the next start recovers the logs", err=True)
        return INTERRUPTED
    except StoreLocked:
        directory = config.log_dirs[0]
        raise Failure(
            f"another broker is running on {directory}; stop it, or choose another --data-dir"
        ) from None


def _read(path: Path) -> dict[str, str]:
    try:
        return read_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"cannot read {path}: it is not UTF-8 text") from None
    except ValueError as error:
        raise InvalidSettings(f"cannot read {path}: {error}") from None


def _parse_address(text: str) -> Endpoint:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > PORT_MAX:
        raise click.BadParameter(f"{text!r} is not of the form HOST:PORT", param_hint="--metrics")
    return Endpoint(host.removeprefix("[").removesuffix("]"), int(port))
