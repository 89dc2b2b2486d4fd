"""The recipes of docs/TESTING.md, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
IMPORTS = """
import json
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from joserfc import jwt
from joserfc.jwk import RSAKey

from barnabas.testing.broker import run_broker
from barnabas.testing.cluster import run_cluster
from barnabas.testing.traffic.replay import replay
from tests.scenario.testing.test_traffic import recorded


@pytest.fixture
def recorded_traffic(tmp_path):
    path = tmp_path / "traffic.jsonl"
    with run_broker() as broker, recorded(path, broker.bootstrap) as proxy:
        broker.create_topic("orders")
        producer = Producer({"bootstrap.servers": proxy})
        producer.produce("orders", b"paid")
        assert producer.flush(30) == 0
    return path


"""
RECIPES = 15

pytestmark = [pytest.mark.slow]


def test_every_recipe_passes(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "TESTING.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```python\n(def test_.*?)```", page, re.DOTALL)
    assert len(recipes) == RECIPES
    (tmp_path / "test_recipes.py").write_text(IMPORTS + "\n\n".join(recipes))
    environment = {
        "PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "barnabas.testing.plugin", "-W", "error", "."],
        cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert f"{RECIPES} passed" in done.stdout, done.stdout + done.stderr
