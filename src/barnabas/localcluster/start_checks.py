"""Checks before the processes of a local cluster start: taken ports, brokers of the home that stay down.

A taken port is one line here. Later it would be the output of every broker that starts, and stops again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import InvalidConfig
from barnabas.network import listener
from barnabas.network.transport.sockets import Sockets

_BROKER_DIRECTORY: Final = re.compile(r"broker-([1-9]\d*)")


class PortTaken(Exception):
    """Another process listens on a port of the cluster."""


def check_ports_differ(configs: Sequence[BrokerConfig]) -> None:
    """INVALID_CONFIG if two listeners would share a port."""
    taken: dict[int, str] = {}
    for config in configs:
        for each in config.listeners:
            port = each.endpoint.port
            owner = f"{each.listener_name} of broker {config.broker_id}"
            if port and port in taken:
                raise InvalidConfig(
                    f"port {port} would serve {taken[port]} and {owner}; each broker uses"
                    " the ports of the previous one, plus one, so leave room for"
                    f" {len(configs)} between the listeners"
                )
            taken[port] = owner


def check_ports_are_free(configs: Sequence[BrokerConfig], metrics: Sequence[Endpoint]) -> None:
    """PortTaken if a broker could not listen. A process may still take a port before its broker does."""
    for config in configs:
        for each in config.listeners:
            _try(each, f"broker {config.broker_id} needs it", "--listener")
    for broker, endpoint in zip(configs, metrics, strict=False):
        _try(
            ListenerEndpoint("METRICS", endpoint),
            f"the metrics of broker {broker.broker_id} need it",
            "--metrics",
        )


def left_out(home: Path, brokers: int) -> list[int]:
    """Brokers that the home has data of, and that a cluster of `brokers` does not start."""
    return sorted(each for each in _broker_ids(home) if each > brokers)


def _broker_ids(home: Path) -> Iterable[int]:
    if home.is_dir():
        for each in home.iterdir():
            found = _BROKER_DIRECTORY.fullmatch(each.name)
            if found and each.is_dir():
                yield int(found[1])


def _try(wanted: ListenerEndpoint, need: str, option: str) -> None:
    if not wanted.endpoint.port:
        return
    try:
        bound = listener.bind(wanted, Sockets(), backlog=1, send_buffer_bytes=-1, receive_buffer_bytes=-1)
    except OSError as error:
        raise PortTaken(
            f"{error.strerror}, and {need}; stop what uses it, or choose another {option}"
        ) from None
    bound.close()
