"""State-change log of a broker: the changes of its partitions, in a file of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner

from barnabas.cli.main import cli
from tests.support.broker import BarnabasBroker, running
from tests.support.waiting import PATIENCE_S, eventually
from tests.support.wire import WireConnection


def test_the_changes_of_a_partition_are_in_their_own_file(tmp_path: Path) -> None:
    file = tmp_path / "state-change.log"
    broker = BarnabasBroker(tmp_path / "data", arguments=["--set", f"state.change.log.file={file}"])
    with running(broker), WireConnection(broker.host, broker.port) as connection:
        assert connection.create_topic("orders") == 0
        moved = tmp_path / "rotated.log"
        file.rename(moved)
        delete = ["topic", "delete", "orders", "--bootstrap", broker.bootstrap]
        assert CliRunner().invoke(cli, delete).exit_code == 0
        eventually(lambda: "stops, and its log is deleted" in (file.read_text() if file.exists() else ""))
    lines = [each for each in moved.read_text().splitlines() if "orders-0" in each]
    said = [each.partition("state.change.logger  ")[2] for each in lines]
    online = next(each for each in said if "to OnlinePartition" in each)
    assert "partition orders-0 changes from NewPartition to OnlinePartition: leader " in online
    assert any("partition orders-0 becomes the leader: leader epoch 0," in each for each in said)
    later = file.read_text()
    assert "partition orders-0 changes from OnlinePartition to OfflinePartition" in later
    assert "orders-0: replica " in later
    assert "from ReplicaDeletionStarted to ReplicaDeletionSuccessful" in later


def test_a_file_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "state-change.log"
    command = BarnabasBroker(tmp_path / "data", settings={"state.change.log.file": missing}).command
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "state.change.log.file: " in done.stderr
    assert "Traceback" not in done.stderr
