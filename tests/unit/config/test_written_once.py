"""A key has one row: its name and its default are written there, and nowhere else."""

from __future__ import annotations

import ast
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import barnabas
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.definitions import BROKER_KEYS
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.config.dynamic.group_config import GROUP_KEYS
from barnabas.config.log_config import LogConfig
from barnabas.coordinator.group.state.settings import GroupSettings
from barnabas.coordinator.transaction.state.settings import TransactionSettings

SOURCE = Path(barnabas.__file__).parent

COMPONENTS = (
    "administration", "cluster", "controller", "coordinator", "handlers", "network", "purgatory",
    "replication", "requests", "storage",
)  # fmt: skip

OWN_WORDS = {
    "controller/state/store.py": {"unclean.leader.election.enable"},  # of a topic, in its znode
    "storage/directory/directory_properties.py": {"broker.id"},  # a field of meta.properties
}


def strings(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_a_row_is_declared_once() -> None:
    declared: Counter[str] = Counter()
    for path in (SOURCE / "config").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Key":
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    declared[str(name.value)] += 1
    own = {name for name, row in TOPIC_KEYS.items() if row.synonym is None}
    assert declared == Counter([*BROKER_KEYS, *own])


def test_what_a_brokers_key_supplies_is_not_written_again() -> None:
    for row in (*TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        if row.synonym is not None:
            source = BROKER_KEYS[row.synonym]
            assert (row.type, row.check) == (source.type, source.check)
            assert row.coarser or row.default == source.default


@pytest.mark.parametrize("package", COMPONENTS)
def test_components_read_attributes_and_name_no_key(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        named = {text for text in strings(path) if text in BROKER_KEYS}
        assert named == OWN_WORDS.get(path.relative_to(SOURCE).as_posix(), set()), path


def test_a_view_has_no_defaults() -> None:
    keys = {name.replace(".", "_") for name in BROKER_KEYS}
    assert not keys & get_type_hints(BrokerConfig).keys() & vars(BrokerConfig).keys() - {"log_dirs"}
    not_keys = {"overridden", "transaction_version"}
    for view in (LogConfig, GroupSettings, TransactionSettings):
        given = {each.name for each in dataclasses.fields(view) if each.default is not dataclasses.MISSING}
        assert given <= not_keys
