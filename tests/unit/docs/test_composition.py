"""Objects are composed: no class is split over a base that only it has."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src"

WITH_ONE_SUBCLASS = {
    "barnabas.testing.broker.RunningBroker": "a broker on its own, too; one of a cluster is asked through it",
    "barnabas.testing.running.wires._ServedSocket": "a connection; sockets that listen derive from it",
    "barnabas.testing.running.virtual_time.VirtualLoop": "the loop of a broker on its own, and of the store",
    "barnabas.cli.support.exit_codes.InvalidSettings": "an error with a more specific subclass",
    "barnabas.client.consumer.listener.RebalanceListener": "applications derive from it",
    "barnabas.client.extensions.interceptors.ConsumerInterceptor": "applications derive from it",
    "barnabas.client.extensions.interceptors.ProducerInterceptor": "applications derive from it",
    "barnabas.client.core.session.Pending": "a blocking connection has plain ones",
    "barnabas.client.aio.pending_requests.Posted": "posted by itself, too",
    "barnabas.config.definitions.keys.Definition": "of topics and groups, too",
    "barnabas.coordinator.group.state.records.GroupRecord": "of every kind but one",
    "barnabas.core.files.RealFiles": "the files of every broker outside of tests",
    "barnabas.faststream.config.KafkaProducer": "of every broker outside of tests",
    "barnabas.faststream.subscribers.KafkaSubscriber": "of single records; batches derive from it",
    "barnabas.node.main.StartupFailed": "an error with a more specific subclass",
    "barnabas.pipelines.spark.formats.registry.RegistryError": "an error with a more specific subclass",
    "barnabas.pipelines.spark.context.run_context.Away": "an error with a more specific subclass",
    "pyspark_barnabas.produce.lanes.Lane": "a producer's own, too",
}
"""Classes that are used without their subclass, and for what."""


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def names_in(module: str, tree: ast.Module) -> dict[str, str]:
    """Full names of the classes and imports of a module."""
    names = {each.name: f"{module}.{each.name}" for each in tree.body if isinstance(each, ast.ClassDef)}
    for each in tree.body:
        if isinstance(each, ast.ImportFrom) and each.module:
            names |= {alias.asname or alias.name: f"{each.module}.{alias.name}" for alias in each.names}
    return names


def classes() -> Iterator[tuple[str, list[str]]]:
    """Every class with its bases, all by full name."""
    for path in SOURCE.rglob("*.py"):
        module, tree = module_of(path), ast.parse(path.read_text(encoding="utf-8"))
        names = names_in(module, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
                yield f"{module}.{node.name}", [names.get(base, base) for base in bases]


def test_no_class_has_a_base_of_its_own() -> None:
    bases = dict(classes())
    subclasses: dict[str, list[str]] = defaultdict(list)
    for name, above in bases.items():
        for each in above:
            subclasses[each].append(name)
    single = {
        name
        for name, below in subclasses.items()
        if len(below) == 1 and name in bases and "typing.Protocol" not in bases[name]
    }
    assert len(bases) > 1_000, "it has read the code"
    assert single == set(WITH_ONE_SUBCLASS)
