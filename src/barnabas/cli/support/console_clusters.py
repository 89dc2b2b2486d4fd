"""Clusters of a console of several: `--cluster NAME=HOST:PORT` or `--cluster NAME=FILE`, repeated.

A file has the properties of the clients of its cluster, and what differs for its pages. No login is shared: a
key of clients in `--command-config` would send the login of one cluster to all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.cli.support.exit_codes import InvalidSettings
from barnabas.cli.support.session import client_properties_of, is_of_console
from barnabas.core.addressing.endpoints import Endpoint

OPTION: Final = "--cluster"
CLUSTERS_MAX: Final = 50
_BOOTSTRAP: Final = "bootstrap.servers"
_NAME: Final = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_BY_CLUSTER: Final = ("listener.name.console.sasl.", "schema.registry.", "console.")
"""Keys of pages that a cluster has for itself. The listener is one for all."""


class ClusterOfConsole(NamedTuple):
    name: str
    bootstrap: tuple[Endpoint, ...]
    properties: dict[str, str]


def clusters_of(given: Sequence[str], common: Mapping[str, str]) -> list[ClusterOfConsole]:
    """Clusters of the options. `common` are the properties of `--command-config`: those of the listener."""
    for name in common:
        if not is_of_console(name) or name.startswith(_BY_CLUSTER):
            raise InvalidSettings(
                f"--command-config has {name}, which is of one cluster: write it into the file of"
                f" {OPTION} NAME=FILE"
            )
    found = [_cluster(each, common) for each in given]
    names = [each.name for each in found]
    if len(found) > CLUSTERS_MAX:
        raise InvalidSettings(f"a console has at most {CLUSTERS_MAX} clusters")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSettings(f"{OPTION} {twice} is given twice")
    return found


def _cluster(text: str, common: Mapping[str, str]) -> ClusterOfConsole:
    name, equals, place = text.partition("=")
    if not equals or not _NAME.fullmatch(name):
        raise InvalidSettings(
            f"{OPTION} {text}: write NAME=HOST:PORT or NAME=FILE; a name has at most 40 letters, digits,"
            " dots, dashes and underscores"
        )
    own: dict[str, str] = {}
    addresses = place
    if _addresses(place) is None:
        path = Path(place)
        if not path.is_file():
            raise InvalidSettings(f"{OPTION} {text}: {place} is neither HOST:PORT nor a file")
        own = client_properties_of(path, f"{OPTION} {name}:")
        for key in own:
            if is_of_console(key) and not key.startswith(_BY_CLUSTER):
                raise InvalidSettings(f"{OPTION} {name}: {key} is of the listener: --command-config has it")
        addresses = own.get(_BOOTSTRAP, "")
    bootstrap = _addresses(addresses)
    if not bootstrap:
        raise InvalidSettings(f"{OPTION} {name}: {place} has no usable {_BOOTSTRAP}")
    return ClusterOfConsole(name, bootstrap, {**common, **own})


def _addresses(text: str) -> tuple[Endpoint, ...] | None:
    try:
        return tuple(Endpoint.parse(part) for part in text.split(",") if part.strip())
    except ValueError:
        return None
