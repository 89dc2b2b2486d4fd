"""The settings of the sockets, out of the broker's configuration and of what the process may open."""

from __future__ import annotations

import resource

from barnabas.config.broker_config import BrokerConfig
from barnabas.config.derived import connection_overrides
from barnabas.config.repository import ConfigRepository
from barnabas.network.settings import UNLIMITED, NetworkSettings


def network_settings(config: BrokerConfig) -> NetworkSettings:
    return NetworkSettings(
        request_bytes_max=config.socket_request_max_bytes,
        idle_ms_max=config.connections_max_idle_ms,
        connections_max=min(config.max_connections, connections_allowed()),
        connections_per_ip_max=config.max_connections_per_ip,
        connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        send_buffer_bytes=_buffer_bytes(config, "socket.send.buffer.bytes"),
        receive_buffer_bytes=_buffer_bytes(config, "socket.receive.buffer.bytes"),
        backlog=config.socket_listen_backlog_size,
    )


def _buffer_bytes(config: BrokerConfig, key: str) -> int:
    """Kafka's default would be a limit where the operating system knows better; who gives a size means it."""
    size_bytes: int = config.values[key]
    return size_bytes if key in config.given else -1


def follow_network_settings(settings: NetworkSettings, configs: ConfigRepository) -> None:
    """Those that may change while the broker runs."""
    settings.connections_max = min(configs.broker_value("max.connections"), connections_allowed())
    settings.connections_per_ip_max = configs.broker_value("max.connections.per.ip")
    settings.connections_per_ip_overrides = connection_overrides(
        configs.broker_value("max.connections.per.ip.overrides")
    )


def connections_allowed() -> int:
    """What connections may take of the process's descriptors: logs must be able to open files,
    however many clients there are."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if limit == resource.RLIM_INFINITY else max(limit // 2, 64)
