"""`barnabas start --secure`: settings of a secured broker or cluster, and first steps for its users."""

from __future__ import annotations

import asyncio
import datetime as dt
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas.cli.support.exit_codes import Failure
from barnabas.cluster.coordination.contract import CoordinationError, StoreLocked
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.derived import (
    SECURED,
    Derived,
    default_cluster_directory,
    default_log_directory,
)
from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import InvalidConfig, KafkaError
from barnabas.core.files import RealFiles
from barnabas.localcluster.secure_setup import ADMIN, LISTENER, MECHANISM, NORMAL_USER, SecuredHome
from barnabas.localcluster.shared_store import uses_zookeeper
from barnabas.storage.directory.directory_properties import META_PROPERTIES
from barnabas.storage.directory.foreign_content import foreign_content

DEFAULT_LISTENER = f"{LISTENER}://127.0.0.1:9093"
_ITS_OWN = frozenset(
    {
        "allow.everyone.if.no.acl.found",
        "authorizer.class.name",
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "inter.broker.listener.name",
        "super.users",
        "zookeeper.auth",
        "zookeeper.connect",
        "zookeeper.set.acl",
    }
)
_ITS_OWN_PREFIXES = ("listener.", "sasl.", "security.", "ssl.", "zookeeper.ssl.")


class Secured:
    """Settings of a secured broker, or of a whole cluster, and the files that they name."""

    def __init__(self, home: SecuredHome, properties: dict[str, str]) -> None:
        self.home = home
        self.properties = properties

    @classmethod
    def of(cls, given: Mapping[str, str], *, is_cluster: bool) -> Secured:
        """Complete the given settings with secure ones. INVALID_CONFIG if they conflict."""
        _refuse_other_security(given)
        properties = {"listeners": DEFAULT_LISTENER, **given}
        if "log.dirs" not in given and "log.dir" not in given:
            usual = default_cluster_directory() if is_cluster else default_log_directory()
            properties["log.dirs"] = str(usual.with_name(f"{usual.name}-secure"))
        config = Derived.of(properties, {**BROKER_KEYS.defaults(), **BROKER_KEYS.parse(properties)})
        _refuse_other_listeners(config.listeners)
        for each in config.log_dirs:
            _refuse_what_is_not_ours(each, is_cluster=is_cluster)
        advertised = [each.endpoint.host for each in config.advertised_listeners.values()]
        now = dt.datetime.fromtimestamp(SystemClock().now_ms() // 1_000, dt.UTC)
        home = SecuredHome.open(
            config.log_dirs, [*(each.endpoint.host for each in config.listeners), *advertised], now
        )
        properties |= home.broker_properties()
        if is_cluster and uses_zookeeper(config.log_dirs[0]):
            properties |= home.zookeeper_properties()
        return cls(home, properties)

    def prepare(self, config: BrokerConfig) -> list[str]:
        """Store the users of one stopped broker; returns the lines for its start. StoreLocked if it is
        running.
        """
        try:
            asyncio.run(self.home.first_users.put(config))
            return self.welcome([config])
        except StoreLocked:
            raise
        except (CoordinationError, KafkaError, OSError) as error:
            raise Failure(f"the users cannot be stored: {error}") from None

    def welcome(self, brokers: Sequence[BrokerConfig]) -> list[str]:
        """Write the client files for these brokers; returns the lines that describe them. The users must be
        stored before.
        """
        addresses = ",".join(address for each in brokers if (address := _address(each)) is not None)
        self.home.settle(addresses or None)
        admin, normal = (shlex.quote(str(self.home.client_file(each))) for each in (ADMIN, NORMAL_USER))
        where = "" if addresses else " --bootstrap HOST:PORT"
        until = f"{self.home.expires:%Y-%m-%d}, and a start in its last two months renews it"
        rule = f"--producer --topic orders --allow-principal User:{NORMAL_USER}"
        return [
            f"secured: TLS and {MECHANISM.mechanism_name}; the certificate is valid until {until}",
            f"  {ADMIN} may do everything:         {admin}",
            f"  {NORMAL_USER} may do what rules allow:   {normal}",
            f"  for kcat and other librdkafka:   {shlex.quote(str(self.home.librdkafka_file(ADMIN)))}",
            "try:",
            f"  barnabas topic create orders --partitions 3{where} --command-config {admin}",
            f"  barnabas acl add {rule}{where} --command-config {admin}",
            f"  echo hello | barnabas produce orders{where} --command-config {normal}",
        ]


def _refuse_other_security(given: Mapping[str, str]) -> None:
    for name in given:
        if name in _ITS_OWN or name.startswith(_ITS_OWN_PREFIXES):
            raise InvalidConfig(f"--secure excludes {name}: leave it out")


def _refuse_other_listeners(listeners: Sequence[ListenerEndpoint]) -> None:
    if [each.listener_name for each in listeners] != [LISTENER]:
        raise InvalidConfig(f"--secure allows one listener, {LISTENER}://HOST:PORT")


def _refuse_what_is_not_ours(directory: Path, *, is_cluster: bool) -> None:
    """Reject a directory that --secure has not made, before any change. Data that was written in the clear
    stays as it is: a secured cluster starts with an empty directory.
    """
    if not directory.exists() or (directory / SECURED).exists():
        return
    reason = foreign_content(RealFiles(), str(directory))
    is_in_use = any(directory.iterdir()) if is_cluster else (directory / META_PROPERTIES).exists()
    if is_in_use:
        reason = f"{directory} is not empty, and was not made by --secure"
    if reason is not None:
        raise InvalidConfig(f"{reason}; choose another --data-dir")


def _address(config: BrokerConfig) -> str | None:
    """Bootstrap address of clients. None for a port that is unknown before the start."""
    advertised = config.advertised_listeners.get(LISTENER)
    endpoint = (advertised or config.listeners[0]).endpoint
    if endpoint.host in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        endpoint = endpoint._replace(host="localhost")
    return str(endpoint) if endpoint.port else None
