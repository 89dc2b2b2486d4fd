"""What a broker tells others about where it can be reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.core.endpoints import ListenerEndpoint
from barnabas.core.errors import InvalidConfig

EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - addresses that are recognised, not bound


def advertised_endpoints(
    bound: Sequence[ListenerEndpoint], advertised: Mapping[str, ListenerEndpoint], *, must_be_reachable: bool
) -> tuple[ListenerEndpoint, ...]:
    """What a broker registers: where others find each of its listeners.

    On its own a broker may listen everywhere and answer with the address that a client used; the other
    brokers of a cluster have used none yet."""
    endpoints = []
    for listener in bound:
        name = listener.listener_name
        at = advertised.get(name, listener)
        if must_be_reachable and at.endpoint.host in EVERYWHERE:
            raise InvalidConfig(
                f"the listener {name} is bound to every address; say under which one the other"
                f" brokers find it: advertised.listeners={name}://HOST:{at.endpoint.port}"
            )
        endpoints.append(at)
    return tuple(endpoints)
