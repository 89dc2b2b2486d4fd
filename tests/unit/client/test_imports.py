"""Importing the client library loads nothing of the broker and nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas.client

OF_THE_CLIENT = {"client", "config", "core", "protocol", "records", "security"}
"""Packages that the client shares with the broker, or has alone."""
OF_THE_CONFIG = {"definitions", "definitions.keys", "listeners", "properties"}
HEAVY = ("click", "cryptography", "kazoo", "numpy", "pandas", "pyarrow", "pyspark", "rich", "uvloop")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(barnabas.client.__path__[0]).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return set(done.stdout.split())


def test_the_whole_client_loads_nothing_of_the_broker_and_nothing_heavy() -> None:
    loaded = loaded_after(
        f"import barnabas.client.sync; from barnabas.client import {', '.join(barnabas.client.__all__)}"
    )
    assert not loaded & set(HEAVY)
    parts = [each.split(".", 2) for each in loaded if each.startswith("barnabas.")]
    assert {part[1] for part in parts} == OF_THE_CLIENT
    assert {part[2] for part in parts if part[1] == "config" and len(part) > 2} == OF_THE_CONFIG


def test_the_package_alone_loads_no_asyncio() -> None:
    assert "asyncio" not in loaded_after("import barnabas.client")


def test_every_public_name_is_there_and_no_other() -> None:
    for name in barnabas.client.__all__:
        assert getattr(barnabas.client, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = barnabas.client.nothing
