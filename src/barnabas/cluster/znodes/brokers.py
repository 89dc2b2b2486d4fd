"""`/brokers/ids/<id>`: ephemeral node of a live broker, with its listeners and features.

The creation zxid of the node is the broker epoch. It differs for every registration, so requests for an
earlier registration of a broker are recognised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from barnabas.cluster.znodes.json_codec import from_json, int32, reading, text, to_json, written
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint

_ENDPOINT = re.compile(r"^(?P<listener>[^:]+)://\[?(?P<host>[^/]*?)\]?:(?P<port>-?\d+)$")

_NO_FEATURES: Mapping[str, tuple[int, int]] = MappingProxyType({})


class BrokerInfo(NamedTuple):
    id: int
    endpoints: tuple[ListenerEndpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = _NO_FEATURES
    """Supported features: name to (lowest, highest) version."""
    timestamp_ms: int = 0
    epoch: int = -1
    """Zxid of the registration; -1 until registered."""


class BrokerIdZnode:
    PARENT = "/brokers/ids"

    @staticmethod
    def path(broker_id: int) -> str:
        return f"/brokers/ids/{broker_id}"

    @staticmethod
    def encode(broker: BrokerInfo) -> bytes:
        # Old clients read one endpoint only: the first plaintext one.
        plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
        fields: dict[str, Any] = {
            "version": 5,
            "host": plain.endpoint.host if plain else None,
            "port": plain.endpoint.port if plain else -1,
            "endpoints": [str(endpoint) for endpoint in broker.endpoints],
            "listener_security_protocol_map": {
                endpoint.listener_name: endpoint.security_protocol for endpoint in broker.endpoints
            },
            "jmx_port": -1,
            "timestamp": str(broker.timestamp_ms),
            "features": {
                name: {"min_version": lowest, "max_version": highest}
                for name, (lowest, highest) in broker.features.items()
            },
        }
        if broker.rack is not None:
            fields["rack"] = broker.rack
        return written(
            broker, to_json(fields), lambda data: BrokerIdZnode.decode(broker.id, data, broker.epoch)
        )

    @staticmethod
    def decode(broker_id: int, data: bytes, epoch: int) -> BrokerInfo:
        with reading(f"the registration of broker {broker_id}"):
            fields = from_json(data)
            version = int(fields["version"])
            if version < 1:
                raise ValueError(f"version {version}")
            if version == 1:
                endpoints: tuple[ListenerEndpoint, ...] = (
                    ListenerEndpoint("PLAINTEXT", Endpoint(text(fields["host"]), int32(fields["port"]))),
                )
            else:
                protocols = {
                    name: text(protocol)
                    for name, protocol in (fields.get("listener_security_protocol_map") or {}).items()
                }
                endpoints = tuple(_endpoint(text, protocols) for text in fields["endpoints"])
            features = {
                name: (int(versions["min_version"]), int(versions["max_version"]))
                for name, versions in (fields.get("features") or {}).items()
            }
            return BrokerInfo(
                id=broker_id,
                endpoints=endpoints,
                rack=None if fields.get("rack") is None else text(fields["rack"]),
                features=features,
                timestamp_ms=int(fields.get("timestamp") or 0),
                epoch=epoch,
            )


class BrokerSequenceZnode:
    """`/brokers/seqid`, whose version is the source of generated broker ids."""

    PATH = "/brokers/seqid"


def _endpoint(text: str, security_protocols: Mapping[str, str]) -> ListenerEndpoint:
    """Parse `INTERNAL://host:9092`. A listener without an entry in the map is named after its protocol."""
    found = _ENDPOINT.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not an endpoint")
    name = found["listener"].upper()
    at = Endpoint(found["host"], int32(found["port"]))
    return ListenerEndpoint(name, at, security_protocols.get(name, name))
