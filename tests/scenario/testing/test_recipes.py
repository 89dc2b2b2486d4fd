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
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from barnabas.testing.broker import run_broker

"""

pytestmark = [pytest.mark.slow]


def test_every_recipe_passes(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "TESTING.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```python\n(def test_.*?)```", page, re.DOTALL)
    assert len(recipes) == 10
    (tmp_path / "test_recipes.py").write_text(IMPORTS + "\n\n".join(recipes))
    environment = {"PYTHONPATH": str(REPOSITORY / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "barnabas.testing.plugin", "-W", "error", "."],
        cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert "10 passed" in done.stdout, done.stdout + done.stderr
