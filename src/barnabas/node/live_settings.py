"""What follows the settings of the broker itself while it runs; those of topics follow by themselves.

Most of the configuration holds from one start to the next. Keys that may change at run time are read
where they are used (`LiveSettings`) or put where they are read (`follow_settings`).
"""

from __future__ import annotations

from typing import Any

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.repository import ConfigRepository
from barnabas.network.settings import NetworkSettings
from barnabas.node.log_settings import cleaner_settings, follow_log_settings
from barnabas.node.network_settings import follow_network_settings
from barnabas.node.replication_settings import follow_replication_settings
from barnabas.node.runtime import ThreadBackground
from barnabas.replication.replica_manager import ReplicaManager


class LiveSettings:
    """The configuration as handlers see it: with what was changed since the start."""

    def __init__(self, config: BrokerConfig, configs: ConfigRepository) -> None:
        self._config = config
        self._configs = configs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)

    @property
    def transaction_partition_verification_enable(self) -> bool:
        enabled: bool = self._configs.broker_value("transaction.partition.verification.enable")
        return enabled


def follow_settings(
    configs: ConfigRepository,
    network: NetworkSettings,
    replicas: ReplicaManager,
    background: ThreadBackground,
) -> None:
    """Something was changed: put every value where it is read."""
    follow_network_settings(network, configs)
    replicas.log_manager.cleaner.reconfigure(cleaner_settings(configs))
    follow_log_settings(replicas.log_manager, configs)
    follow_replication_settings(replicas.settings, configs)
    background.resize(configs.broker_value("background.threads"))
