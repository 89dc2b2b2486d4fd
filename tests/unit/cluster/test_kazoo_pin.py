"""kazoo's private names that the ZooKeeper wire uses, and the one version that they were read in (ADR 33)."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("kazoo")

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

from barnabas.cluster.zookeeper import wire

ROOT = Path(__file__).resolve().parents[3]
KAZOO_VERSION = "2.11.0"

PRIVATE_NAMES = {
    KazooClient: {"_call", "_conn_retry", "_connection", "_pending", "_queue", "_session_callback"},
    ConnectionHandler: {
        "_authenticate_with_sasl",
        "_connect",
        "_connect_attempt",
        "_invoke",
        "_read",
        "_read_header",
        "_read_sock",
        "_read_socket",
        "_read_watch_event",
        "_send_request",
        "_socket",
        "_socket_error_handling",
        "_submit",
        "_write",
        "_xid",
    },
    SequentialThreadingHandler: {"_running"},
}
"""Private attributes and methods that `wire` reads, calls, sets or overrides, by kazoo's class."""


def names_of(kazoo_class: type) -> set[str]:
    """Attributes of the class and of an instance that has not connected."""
    client = KazooClient()
    instances = {
        KazooClient: client,
        ConnectionHandler: ConnectionHandler(client, client._conn_retry.copy()),
        SequentialThreadingHandler: SequentialThreadingHandler(),
    }
    return set(dir(kazoo_class)) | set(vars(instances[kazoo_class]))


def private_names_in_wire() -> set[str]:
    """Every private name that `wire` defines, or uses as an attribute."""
    tree = ast.parse(Path(wire.__file__).read_text(encoding="utf-8"))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name for name in used | defined if name.startswith("_") and not name.startswith("__")}


def test_the_installed_kazoo_is_the_one_that_the_wire_was_read_against() -> None:
    assert version("kazoo") == KAZOO_VERSION, (
        f"kazoo {version('kazoo')} is installed, but cluster/zookeeper/wire.py overrides private methods of"
        f" kazoo {KAZOO_VERSION}. Compare kazoo's client.py and protocol/connection.py of both versions with"
        " wire.py, run the contract and chaos tests, then change the pin everywhere (docs/adr/0033)"
    )


@pytest.mark.parametrize("kazoo_class", PRIVATE_NAMES, ids=lambda each: each.__name__)
def test_kazoo_still_has_each_private_name(kazoo_class: type) -> None:
    missing = PRIVATE_NAMES[kazoo_class] - names_of(kazoo_class)
    assert not missing, (
        f"kazoo {version('kazoo')} has no {kazoo_class.__name__}.{', '.join(sorted(missing))} any more, which"
        " cluster/zookeeper/wire.py relies on (docs/adr/0033)"
    )


def test_the_wire_uses_no_other_private_name_of_kazoo() -> None:
    known = set().union(*PRIVATE_NAMES.values())
    of_kazoo = set().union(*map(names_of, PRIVATE_NAMES))
    assert private_names_in_wire() & of_kazoo == known


def test_the_package_and_the_constraints_pin_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["zookeeper"] == [f"kazoo=={KAZOO_VERSION}"]
    assert f"kazoo=={KAZOO_VERSION}" in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
