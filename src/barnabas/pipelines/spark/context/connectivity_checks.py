"""Connectivity checks before Spark starts: brokers, topics and files of a spec.

Spark itself needs minutes to report a missing broker. This check takes a second. The command line prints its
result; a driver passes it to the supervisor, which retries later. Each cluster is queried with the client
settings of the part that needs it.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import random
import re
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.security.settings import SECRETS, SecurityProtocol, SecuritySettings
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError, NetworkException, UnknownTopicOrPartition
from barnabas.pipelines.spark.context.run_context import Away, Unavailable
from barnabas.pipelines.spec.model import Engine, Part, PipelineSpec
from barnabas.pipelines.spec.options.client_settings import PROTOCOL, plain_names
from barnabas.pipelines.spec.own_cluster import own_client_settings
from barnabas.security.identity.secret_references import resolve

CHECK_TIMEOUT_S = 10.0
_BEYOND_A_PATH = re.compile(r"[*?\[{\\]|^[A-Za-z][A-Za-z0-9+.-]*:")
UNKNOWN_TOPIC = UnknownTopicOrPartition.code


class BrokerMissing(Away):
    """No broker answers."""

    protocol = SecurityProtocol.PLAINTEXT
    """Security protocol of the attempt."""
    was_connected = False
    """A broker accepted the connection and then closed it."""


class TopicMissing(Unavailable):
    """A topic of the source does not exist."""


class FileMissing(Unavailable):
    """A file or directory of the source does not exist."""


class _Need(NamedTuple):
    path: tuple[str | int, ...]
    """Path of the part in the spec."""
    bootstrap: str
    settings: tuple[tuple[str, str], ...]
    topics: tuple[str, ...]


def needs_broker(spec: PipelineSpec) -> bool:
    return any(True for _ in _needs(spec, ""))


def asked_brokers(spec: PipelineSpec, bootstrap: str) -> str:
    """Addresses that `check_topics` asks, each once."""
    return ",".join(dict.fromkeys(need.bootstrap for need in _needs(spec, bootstrap)))


def check_topics(spec: PipelineSpec, bootstrap: str) -> None:
    """Raises BrokerMissing or TopicMissing."""
    by_cluster: dict[object, list[_Need]] = {}
    for need in _needs(spec, bootstrap):
        by_cluster.setdefault((need.bootstrap, need.settings), []).append(need)
    for needs in by_cluster.values():
        run_apart(_check(needs))


def check_files(spec: PipelineSpec, master: str) -> None:
    """Raises FileMissing for a path that a local Spark would not find. Spark checks patterns and URLs."""
    is_elsewhere = "spark.hadoop.fs.defaultFS" in spec.spark.conf or "HADOOP_CONF_DIR" in os.environ
    if is_elsewhere or not master.startswith("local"):
        return
    for path, part in _parts(spec):
        if part.type != "files" or path[-1] != "source":
            continue
        given = str(resolve(part["path"]))
        local = given.removeprefix("file:")
        if not _BEYOND_A_PATH.search(local) and not Path(local).exists():
            option = ".".join(map(str, (*path, "path")))
            raise FileMissing(f"{option}: there is no file or directory {given!r}", path)


def run_apart(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, also where a loop runs on this thread, as in a notebook."""
    failures: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(work)
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            failures.append(error)

    thread = threading.Thread(target=target, name="query the brokers", daemon=True)
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
        if part.type in ("topic", "mirror") and not is_from_files:
            need = _need(path, part, bootstrap)
            if spec.engine is not Engine.JVM or not any(name == PROTOCOL for name, _ in need.settings):
                yield need  # Java's client has login methods that ours lacks
    if spec.errors.dead_letter_topic:
        yield _Need(("errors",), bootstrap, tuple(own_client_settings(spec).items()), ())


def _need(path: tuple[str | int, ...], part: Part, bootstrap: str) -> _Need:
    given = resolve(part.get("bootstrap") or bootstrap)
    settings = plain_names(part.get("kafka") or {})
    topics = tuple(resolve(part.get("topics") or ())) if path[-1] == "source" else ()
    servers = given if isinstance(given, str) else ",".join(given)
    return _Need(path, servers, tuple(sorted(settings.items())), topics)


async def _check(needs: list[_Need]) -> None:
    first = needs[0]
    addresses = [Endpoint.parse(each.strip()) for each in first.bootstrap.split(",")]
    given = str(resolve(dict(first.settings).get(PROTOCOL, SecurityProtocol.PLAINTEXT.name))).upper()
    protocol = SecurityProtocol.__members__.get(given, SecurityProtocol.PLAINTEXT)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            async with client_of(addresses, dict(first.settings)) as cluster:
                await cluster.refresh(())
                for need in needs:
                    await _check_topics(cluster, need)
    except (ClusterUnreachable, NetworkException) as error:
        missing = BrokerMissing(str(error))
        missing.protocol, missing.was_connected = protocol, isinstance(error, NetworkException)
        raise missing from None
    except TimeoutError:
        raise BrokerMissing(
            f"{first.bootstrap} does not answer within {CHECK_TIMEOUT_S:.0f} seconds"
        ) from None
    except KafkaError as error:
        kind = Away if error.retriable else Unavailable
        raise kind(f"{first.bootstrap} cannot list its topics: {error.message}") from None


def client_of(addresses: list[Endpoint], settings: Mapping[str, str]) -> ClusterClient:
    """Client with the security settings of `settings`; InvalidConfig names an invalid one."""
    plain = {name: text if name in SECRETS else resolve(text) for name, text in settings.items()}
    return ClusterClient(
        addresses,
        clock=SystemClock(),
        randomness=random.SystemRandom(),
        security=SecuritySettings.parse(plain).secured(),
    )


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
        f"{option}: {', '.join(hints)} (create it with 'barnabas topic create {missing[0]}')", need.path
    )
