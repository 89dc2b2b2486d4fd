"""Kills under consume-transform-produce: every input is in the output, once and in order.

Sometimes the broker is killed, sometimes workers, sometimes both. One worker owns its partitions by its
transactional id alone, so that no rebalance blurs what is seen; those of a group have theirs by its
generation, and partitions move between them while transactions are open.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenario.transactions.siege import BOTH, BROKER, WORKERS, Siege
from tests.support.broker import running
from tests.support.fixtures import chosen_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 15
GROUP_KILLS = int(os.environ.get("BARNABAS_SIEGE_CYCLES", "6"))
SEED = int(os.environ.get("BARNABAS_SIEGE_SEED", "20261116"))
"""A longer or another siege can be asked for."""
SETTINGS = {
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 1_000,
}


def test_every_input_is_in_the_output_once_whatever_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker = chosen_broker(request.config, tmp_path / "data", **SETTINGS)
    with running(broker):
        siege = Siege(broker, tmp_path / "notes", {"one": ("one", "2")}, partitions=2, seed=SEED)
        siege.lay(KILLS, [BROKER, BROKER, WORKERS, BOTH], workers_max=1, run_on_s_max=0.1)


def test_every_input_is_in_the_output_once_when_any_member_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker = chosen_broker(request.config, tmp_path / "data", **SETTINGS)
    with running(broker):
        workers = {name: (name,) for name in ("worker-0", "worker-1", "worker-2")}
        siege = Siege(broker, tmp_path / "notes", workers, partitions=4, seed=SEED)
        siege.lay(GROUP_KILLS, [BROKER, WORKERS, WORKERS, BOTH], workers_max=2, run_on_s_max=0.3)
