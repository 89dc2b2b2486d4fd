"""A standalone Spark on two addresses of this machine.

Spark starts a speculative copy of a task on another host than the task's own, and to `local` and
`local-cluster` all of this machine is one host.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from tests.support.broker import REPOSITORY
from tests.support.ports import free_port
from tests.support.process import ServerProcess

HOSTS = ("127.0.0.1", "127.0.0.2")
READY_S = 300.0
SPECULATION: Mapping[str, str] = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.executor.memory": "512m",
}
"""As soon as half of a stage's tasks are done, the others are copied."""


@contextmanager
def standalone_spark(directory: Path) -> Iterator[str]:
    """The master's address; there is one worker of one core on each host."""
    port = free_port()
    with ExitStack() as stack:
        master = _daemon(
            stack, directory, "master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", "0"
        )
        master.wait_ready(READY_S)
        address = f"spark://{HOSTS[0]}:{port}"
        for host in HOSTS:
            arguments = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0")
            work = ("--work-dir", str(directory / f"work-{host}"))
            _daemon(stack, directory, "worker.Worker", *arguments, *work, address).wait_ready(READY_S)
        yield address


def _daemon(stack: ExitStack, directory: Path, name: str, *arguments: str) -> ServerProcess:
    home = Path(pyspark.__file__).parent
    process = ServerProcess(
        [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
        is_ready=lambda line: "I have been elected leader" in line or "registered with master" in line,
        environment={
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOSTS[0],
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}",
        },
        working_directory=directory,
    )
    stack.callback(process.kill)
    return process
