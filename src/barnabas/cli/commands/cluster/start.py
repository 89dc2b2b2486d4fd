"""`barnabas start`: a broker or a local cluster, from a properties file and options.

This module imports neither the client nor anything that prints tables: a fast start is a feature.
"""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.support.arguments import parse_address, parse_pairs
from barnabas.cli.support.exit_codes import INTERRUPTED, Failure, InvalidSettings
from barnabas.config.derived import SECURED, log_directories
from barnabas.config.kraft_properties import translate
from barnabas.config.properties import read_properties
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig
from barnabas.core.optional_dependencies import install_command
from barnabas.node.gc_tuning import collect_seldom

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.commands.security.secure import Secured
    from barnabas.config.broker_config import BrokerConfig

CONSOLE_ADDRESS = Endpoint("127.0.0.1", 8080)
_IDS = frozenset({"broker.id", "node.id"})
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


@click.command()
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file in Apache Kafka's format.",
)
@click.option("--data-dir", metavar="DIR", help="Data directory (log.dirs).")
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME://HOST:PORT",
    help="Listener (listeners), such as PLAINTEXT://127.0.0.1:9093; may be given several times.",
)
@click.option("--broker-id", metavar="N", help="Broker id (broker.id).")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,…/CHROOT|local",
    help="ZooKeeper of the cluster (zookeeper.connect), for brokers on several machines; `local` starts one.",
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
    help="Start a cluster of N brokers, ids 1 to N, on consecutive ports from the listener's.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting (see `barnabas config keys`); may be given several times, and wins over all others.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Enable TLS, passwords and access rules. Certificates and users are created once.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics on this address.")
@click.option(
    "--console",
    "console_text",
    envvar="BARNABAS_CONSOLE",
    metavar="HOST:PORT|off",
    help="Serve a web page of the cluster on this address; with --brokers it is on 127.0.0.1:8080 by default."
    "  [env: BARNABAS_CONSOLE]",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="For tests: serve an interface for faults, lives and virtual time (docs/TESTING.md). Loopback only.",
)
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
    console_text: str | None,
    control: str | None,
) -> None:
    """Start a broker or a local cluster.

    Without options the broker listens on 127.0.0.1:9092 and keeps its data in ~/.local/share/barnabas (under
    XDG_DATA_HOME if that is set).

    With --brokers it runs one process per broker, with the data in ~/.local/share/barnabas-cluster, and one
    for their coordination store unless --zookeeper names another. It restarts processes that exit
    unexpectedly, and stops all of them in order.

    With --secure it listens on 127.0.0.1:9093 (SASL_SSL) and keeps its data in a directory of its own
    (barnabas-secure, barnabas-cluster-secure). It prints how to log in.
    """
    options = {
        "log.dirs": data_dir,
        "listeners": ",".join(listeners) or None,
        "broker.id": broker_id,
        "zookeeper.connect": zookeeper,
        "zookeeper.auth": zookeeper_auth,
    }
    chosen = {name: text for name, text in options.items() if text is not None}
    chosen |= parse_pairs(settings, "--set")
    properties = _merged({} if config_file is None else _read(config_file), chosen)
    metrics_address = None if metrics is None else parse_address(metrics, "--metrics")
    control_address = None if control is None else parse_address(control, "--control")
    console_address = _console_address(console_text, is_cluster=brokers is not None)

    from barnabas.config.broker_config import BrokerConfig  # noqa: PLC0415 - not needed for --help

    try:
        secured = _secured(properties, is_cluster=brokers is not None) if secure else None
        if secured is not None:
            properties = secured.properties
        elif config_file is None:
            _refuse_to_open(properties)
        if control_address is not None and console_text is not None and console_address is not None:
            raise InvalidConfig("no console runs beside --control; leave out --console")
        if brokers is not None and control_address is not None:
            if secured is not None:
                raise InvalidConfig("--control of a cluster has no --secure; leave out one of them")
            sys.exit(_run_controlled_cluster(properties, brokers, control_address, metrics_address))
        if brokers is not None:
            sys.exit(_run_cluster(properties, brokers, metrics_address, secured, console_address))
        config = BrokerConfig.load(properties)
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None

    sys.exit(_run(config, metrics_address, secured, control_address, console_address))


def _console_address(text: str | None, *, is_cluster: bool) -> Endpoint | None:
    if text is None:
        return CONSOLE_ADDRESS if is_cluster else None
    return None if text.strip().lower() == "off" else parse_address(text, "--console")


def _merged(file: dict[str, str], chosen: dict[str, str]) -> dict[str, str]:
    """Properties of the file and the options, which win. Warns about settings of KRaft."""
    if chosen.keys() & _IDS:
        file = {name: text for name, text in file.items() if name not in _IDS}
    translation = translate(file | chosen)
    if translation.warning is not None:
        click.echo(f"barnabas: {translation.warning}", err=True)
    return translation.properties


def _secured(properties: dict[str, str], *, is_cluster: bool) -> Secured:
    try:
        from barnabas.cli.commands.security.secure import Secured  # noqa: PLC0415 - optional dependencies
    except ImportError as error:
        raise InvalidSettings(
            f"--secure needs {error.name}: install it with {install_command('security')}"
        ) from None
    return Secured.of(properties, is_cluster=is_cluster)


def _refuse_to_open(properties: dict[str, str]) -> None:
    """Reject a start in the clear of data that --secure made, unless a properties file asks for it."""
    directory = log_directories({name: properties.get(name) for name in ("log.dirs", "log.dir")})[0]
    if (directory / SECURED).exists():
        raise InvalidConfig(f"{directory} belongs to a secured broker: start it with --secure")


def _run_cluster(
    properties: dict[str, str],
    brokers: int,
    metrics_address: Endpoint | None,
    secured: Secured | None,
    console_address: Endpoint | None,
) -> int:
    from barnabas.config.broker_config import BrokerConfig  # noqa: PLC0415
    from barnabas.localcluster.local_cluster import ClusterFailed, LocalCluster  # noqa: PLC0415

    users = None if secured is None else secured.home.first_users
    companion = None
    if console_address is not None:
        from barnabas.cli.support.console_beside import console_of_cluster  # noqa: PLC0415

        companion = console_of_cluster(console_address, lambda: cluster.properties)
    cluster = LocalCluster(properties, brokers, metrics_address, first_users=users, companion=companion)

    def announce(line: str) -> None:
        click.echo(line)
        if secured is not None:
            configs = [BrokerConfig.load(each) for each in cluster.properties.values()]
            click.echo("\n".join(secured.welcome(configs)))

    try:
        cluster.run(announce, _say)
    except ClusterFailed as error:
        raise Failure(_reason(error)) from None
    return 0


def _run_controlled_cluster(
    properties: dict[str, str], brokers: int, control_address: Endpoint, metrics_address: Endpoint | None
) -> int:
    collect_seldom()
    from barnabas.testing.http.controlled import cluster_config, run_controlled  # noqa: PLC0415

    config = cluster_config(properties)
    return _reporting_failures(
        config, lambda: run_controlled(config, control_address, metrics_address, brokers=brokers)
    )


def _say(name: str, line: str) -> None:
    """Print a line of a process of the cluster, with the name of the process."""
    click.echo(f"[{name}] {line}", err=True)


def _run(
    config: BrokerConfig,
    metrics_address: Endpoint | None,
    secured: Secured | None,
    control_address: Endpoint | None = None,
    console_address: Endpoint | None = None,
) -> int:
    # Imported here because only a valid configuration needs the broker.
    collect_seldom()
    from barnabas.node.main import run  # noqa: PLC0415

    def serve() -> int:
        welcome = [] if secured is None else secured.prepare(config)
        if control_address is not None:
            from barnabas.testing.http.controlled import run_controlled  # noqa: PLC0415 - for tests alone

            return run_controlled(config, control_address, metrics_address, welcome)
        beside = None
        if console_address is not None:
            from barnabas.cli.support.console_beside import console_of_broker  # noqa: PLC0415

            beside = console_of_broker(console_address, config)
        return run(config, metrics_address, welcome, beside=beside)

    return _reporting_failures(config, serve)


def _reporting_failures(config: BrokerConfig, serve: Callable[[], int]) -> int:
    """Run brokers; an error of their start becomes a message that says what to write instead."""
    from barnabas.cluster.coordination.contract import StoreLocked  # noqa: PLC0415
    from barnabas.node.main import StartupFailed  # noqa: PLC0415

    try:
        return serve()
    except InvalidConfig as error:
        raise InvalidSettings(error.message) from None
    except StartupFailed as error:
        if isinstance(error.__cause__, InvalidConfig):
            raise InvalidSettings(error.__cause__.message) from None
        message = _reason(error)
        if getattr(error.__cause__, "errno", None) == errno.EADDRINUSE:
            option = "--listener" if message.startswith("cannot listen") else "--metrics"
            option = "--control" if message.startswith("cannot serve control") else option
            message += f"; stop what uses it, or choose another {option}"
        raise Failure(message) from None
    except KeyboardInterrupt:
        # The second Ctrl-C asks for an exit without waiting.
        click.echo("barnabas: stopped at once; the next start recovers the logs", err=True)
        return INTERRUPTED
    except StoreLocked:
        directory = config.log_dirs[0]
        raise Failure(
            f"another broker is running on {directory}; stop it, or choose another --data-dir"
        ) from None


def _reason(failure: Exception) -> str:
    """Message of a failed start. That of a file or directory without more words names what to choose."""
    cause = failure.__cause__
    if isinstance(cause, OSError) and cause.filename is not None and str(cause) == str(failure):
        return f"cannot use {cause.filename}: {cause.strerror}; choose another --data-dir (log.dirs)"
    return _ERRNO.sub("", str(failure))


def _read(path: Path) -> dict[str, str]:
    try:
        return read_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidSettings(f"cannot read {path}: it is not UTF-8 text") from None
    except ValueError as error:
        raise InvalidSettings(f"cannot read {path}: {error}") from None
