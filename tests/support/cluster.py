"""A cluster of real broker processes on one ZooKeeper, and the things one does to brokers.

    with cluster(3, tmp_path, zookeeper, {"min.insync.replicas": 2}) as three:
        three.brokers[0].kill()
        three.wait_for(lambda: leader(three) != 1)

`brokers[i]` has the id i + 1, a fixed port and a data directory, so it can come back after its end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker import BarnabasBroker
from tests.support.broker_group import BrokerGroup
from tests.support.wire import broker_count

SESSION_TIMEOUT_MS = 2_000
"""Short, so that a dead broker is missed soon; long enough for a machine that is busy."""


class ClusterBroker(BarnabasBroker):
    """One broker of a cluster."""

    def __init__(
        self,
        broker_id: int,
        data_directory: Path,
        zookeeper: str,
        settings: Mapping[str, object],
        arguments: Sequence[str] = (),
        port: int | None = None,
        protocol: str = "PLAINTEXT",
        code: Path | None = None,
    ) -> None:
        """`zookeeper` is a connect string, or the path of a shared store's socket."""
        store = "coordination.socket" if zookeeper.startswith("/") else "zookeeper.connect"
        own: dict[str, object] = {
            "broker.id": broker_id,
            store: zookeeper,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        }
        super().__init__(
            data_directory,
            settings={**own, **settings},
            arguments=arguments,
            port=port,
            protocol=protocol,
            code=code,
        )
        self.id = broker_id

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running

    def terminate(self) -> None:
        """SIGTERM, and wait until it is gone: a clean shutdown with exit code 0."""
        super().stop()

    def stop(self) -> None:
        """SIGSTOP: the process stands still, its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start again after `kill` or `terminate`; one that still runs is terminated first."""
        if self.is_running:
            self.terminate()
        self.start()


class Cluster(BrokerGroup[ClusterBroker]):
    def __init__(self, brokers: Sequence[ClusterBroker], zookeeper: str) -> None:
        super().__init__(brokers)
        self.zookeeper = zookeeper

    def wait_until_acquainted(self) -> None:
        """Every broker knows all others. A broker is ready before the others have heard of it."""

        def all_agree() -> bool:
            counts = {broker_count(broker.host, broker.port) for broker in self.brokers}
            return counts == {len(self.brokers)}

        self.wait_for(all_agree, what="all brokers know each other")


@contextmanager
def cluster(
    n: int,
    tmp_path: Path,
    zookeeper: str,
    settings: Mapping[str, object] | None = None,
    *,
    arguments: Sequence[str] = (),
) -> Iterator[Cluster]:
    """N brokers, ids 1 to N, all ready on entry and gone on exit. `zookeeper` is a connect string."""
    brokers = [
        ClusterBroker(broker_id, tmp_path / f"broker-{broker_id}", zookeeper, settings or {}, arguments)
        for broker_id in range(1, n + 1)
    ]
    running = Cluster(brokers, zookeeper)
    try:
        running.start()
        running.wait_until_acquainted()
        yield running
    finally:
        running.kill()
