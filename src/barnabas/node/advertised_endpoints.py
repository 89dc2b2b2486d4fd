"""What a broker tells others about where it can be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.cluster.broker_znodes import Endpoint
from barnabas.config.listeners import Listener
from barnabas.core.errors import InvalidConfig

EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - addresses that are recognised, not bound


def advertised_endpoints(
    bound: Sequence[Listener], advertised: Mapping[str, Listener], *, must_be_reachable: bool
) -> tuple[Endpoint, ...]:
    """What a broker registers: where others find each of its listeners.

    On its own a broker may listen everywhere and answer with the address that a client used; the other
    brokers of a cluster have used none yet."""
    endpoints = []
    for listener in bound:
        at = advertised.get(listener.name, listener)
        if must_be_reachable and at.host in EVERYWHERE:
            raise InvalidConfig(
                f"the listener {listener.name} is bound to every address; say under which one the other"
                f" brokers find it: advertised.listeners={listener.name}://HOST:{at.port}"
            )
        endpoints.append(Endpoint(at.name, at.host, at.port, at.security_protocol))
    return tuple(endpoints)
