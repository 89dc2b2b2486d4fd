"""Are the brokers, topics and files of a spec there? Asked before Spark starts, and answered at once.

Spark's own way to find out takes minutes of silence. Whoever runs a pipeline asks here first: a person
gets a line in a second, a driver hands the line to its supervisor, who tries again later. Brokers that
want TLS or passwords are only knocked at.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import random
import re
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.client.cluster_client import ClusterClient
from barnabas.client.steps import ClusterUnreachable
from barnabas.core.clock import SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, UnknownTopicOrPartition
from barnabas.pipelines.spark.run import Unavailable
from barnabas.pipelines.spec.model import Engine, Part, PipelineSpec
from barnabas.security.secret_references import resolve

PATIENCE_S = 10.0
PLAINTEXT = "PLAINTEXT"
_BEYOND_A_PATH = re.compile(r"[*?\[{\\]|^[A-Za-z][A-Za-z0-9+.-]*:")
UNKNOWN_TOPIC = UnknownTopicOrPartition.code


class BrokerMissing(Unavailable):
    """No broker answers."""


class TopicMissing(Unavailable):
    """A source's topic does not exist."""


class FileMissing(Unavailable):
    """A source's file or directory does not exist."""


class _Need(NamedTuple):
    path: tuple[str | int, ...]
    """Of the part in the spec."""
    bootstrap: str
    is_plain: bool
    topics: tuple[str, ...]


def needs_broker(spec: PipelineSpec) -> bool:
    return any(True for _ in _needs(spec, ""))


def check_topics(spec: PipelineSpec, bootstrap: str) -> None:
    """Raises BrokerMissing or TopicMissing."""
    by_cluster: dict[tuple[str, bool], list[_Need]] = {}
    for need in _needs(spec, bootstrap):
        by_cluster.setdefault((need.bootstrap, need.is_plain), []).append(need)
    for needs in by_cluster.values():
        run_apart(_check(needs))


def check_files(spec: PipelineSpec, master: str) -> None:
    """Raises FileMissing for what a Spark on this machine would not find. Patterns and URLs are its own."""
    is_elsewhere = "spark.hadoop.fs.defaultFS" in spec.spark.conf or "HADOOP_CONF_DIR" in os.environ
    if is_elsewhere or not master.startswith("local"):
        return
    for path, part in _parts(spec):
        if part.type != "files" or path[-1] != "source":
            continue
        given = str(resolve(part["path"]))
        place = given.removeprefix("file:")
        if not _BEYOND_A_PATH.search(place) and not Path(place).exists():
            option = ".".join(map(str, (*path, "path")))
            raise FileMissing(f"{option}: there is no file or directory {given!r}", path)


def run_apart(work: Coroutine[Any, Any, None]) -> None:
    """Run to its end, also where a loop is running on this thread, as in a notebook."""
    failures: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            failures.append(error)

    thread = threading.Thread(target=target, name="ask the brokers", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _parts(spec: PipelineSpec) -> Iterator[tuple[tuple[str | int, ...], Part]]:
    yield ("source",), spec.source
    yield ("sink",), spec.sink
    for at, part in enumerate(spec.transforms):
        if part.type == "join":
            yield ("transforms", at, "source"), part["source"]


def _needs(spec: PipelineSpec, bootstrap: str) -> Iterator[_Need]:
    for path, part in _parts(spec):
        is_from_files = spec.engine is Engine.SEGMENTS and part.get("manifest")
        if part.type == "topic" and not is_from_files:
            yield _need(path, part, bootstrap)
    if spec.errors.dead_letter_topic:
        yield _Need(("errors",), bootstrap, True, ())


def _need(path: tuple[str | int, ...], part: Part, bootstrap: str) -> _Need:
    given = resolve(part.get("bootstrap") or bootstrap)
    settings = {name.removeprefix("kafka."): each for name, each in (part.get("kafka") or {}).items()}
    topics = tuple(resolve(part.get("topics") or ())) if path[-1] == "source" else ()
    place = given if isinstance(given, str) else ",".join(given)
    return _Need(path, place, settings.get("security.protocol", PLAINTEXT) == PLAINTEXT, topics)


async def _check(needs: list[_Need]) -> None:
    first = needs[0]
    addresses = [Endpoint.parse(each.strip()) for each in first.bootstrap.split(",")]
    try:
        async with asyncio.timeout(PATIENCE_S):
            if not first.is_plain:
                await _knock(addresses)
                return
            cluster = ClusterClient(addresses, clock=SystemClock(), randomness=random.SystemRandom())
            async with cluster:
                await cluster.refresh(())
                for need in needs:
                    await _check_topics(cluster, need)
    except ClusterUnreachable as error:
        raise BrokerMissing(str(error)) from None
    except TimeoutError:
        raise BrokerMissing(f"{first.bootstrap} does not answer within {PATIENCE_S:.0f} seconds") from None
    except KafkaError as error:
        raise BrokerMissing(f"{first.bootstrap} cannot be asked for its topics: {error.message}") from None


async def _knock(addresses: list[Endpoint]) -> None:
    reasons = []
    for address in addresses:
        try:
            _, writer = await asyncio.open_connection(address.host, address.port)
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            writer.close()
            return
    raise ClusterUnreachable(reasons)


async def _check_topics(cluster: ClusterClient, need: _Need) -> None:
    if not need.topics:
        return
    answer = await cluster.refresh(need.topics)
    missing = [row.name for row in answer.topics if row.error_code == UNKNOWN_TOPIC and row.name]
    if not missing:
        return
    await cluster.refresh(None)
    hints = []
    for name in missing:
        close = difflib.get_close_matches(name, [*cluster.state.topics], n=1)
        hints.append(f"there is no topic {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
    option = ".".join(map(str, (*need.path, "topics")))
    raise TopicMissing(
        f"{option}: {', '.join(hints)} (make it with 'barnabas topic create {missing[0]}')", need.path
    )
