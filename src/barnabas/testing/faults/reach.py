"""Rules that could never match: they name what a request does not have, or a version that is not served.

Such a rule would change nothing, and the test would not say why. A rule that names no API is not checked: it
is meant for all requests that have what it names.
"""

from __future__ import annotations

from typing import Final

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.requests.served_versions import SERVED_VERSIONS
from barnabas.testing.faults.actions import Action
from barnabas.testing.faults.selection import Selection, named_by

_NEEDED: Final[dict[str, str]] = {
    "fence-producer": "transactional_id",
    "fence-member": "member",
    "rebalance": "group",
    "move-leader": "topic",
}
"""The kind of thing that a request must name, by action."""


def check_reach(api: ApiKey, version: int | None, selection: Selection, action: Action | None) -> None:
    """Raise ValueError for a rule that matches no request of this API."""
    served = SERVED_VERSIONS.get(api)
    if served is None:
        raise ValueError(f"the broker serves no {api.camel_name}, so the rule matches no request")
    if version is not None and version not in served:
        raise ValueError(
            f"version={version} matches no request: the broker serves {api.camel_name} from {min(served)} to"
            f" {max(served)}"
        )
    named = named_by(request_class(api))
    wanted = {
        "topic": selection.topic,
        "partition": selection.partitions,
        "group": selection.group,
        "transactional_id": selection.transactional_id,
        "resource": selection.resource,
    }
    for name, value in wanted.items():
        if value is not None and name not in named:
            raise ValueError(f"{name} matches no request: {api.camel_name} names {_listed(named)}")
    needed = None if action is None else _NEEDED.get(action)
    if needed is not None and needed not in named:
        raise ValueError(f"action={action!r} needs a {needed}: {api.camel_name} names {_listed(named)}")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "nothing that a rule selects"
