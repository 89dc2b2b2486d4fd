"""Three brokers as a case sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.differential.world import Side, Topic, World
from tests.support import wire
from tests.support.clusters import AnyCluster

CHOSEN_BY_THE_CLUSTER = frozenset({"FindCoordinatorResponse"})
"""Answers that name a broker which each cluster chooses for itself."""


@dataclass
class ClusterSide(Side):
    cluster: AnyCluster = field(kw_only=True)

    @property
    def name(self) -> str:
        return self.cluster.name

    def connect(self, node: int | None = None) -> wire.WireConnection:
        node = self.cluster.view([]).controller_id if node is None else node
        broker = self.cluster.broker(node)
        return wire.WireConnection(broker.host, broker.port)

    def word_for(self, root: str, field_name: str, value: object) -> str | None:
        nodes = {broker.id: broker.port for broker in self.cluster.brokers}
        ids = {port: node for node, port in nodes.items()}
        chosen = root in CHOSEN_BY_THE_CLUSTER
        if field_name == "port" and isinstance(value, int) and value in ids:
            return "<a port>" if chosen else f"<port of {ids[value]}>"
        if field_name == "node_id" and chosen and value in nodes:
            return "<a broker>"
        if field_name == "controller_id" and value in nodes:
            return "<a broker>"
        return super().word_for(root, field_name, value) if field_name != "port" else None

    def place(
        self, name: str, assignment: Mapping[int, Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> Topic:
        """A new topic with these replicas, all in sync and known everywhere."""
        self.cluster.create_topic(name, assignment=assignment, configs=configs)
        topic = self.learn_id(name)
        self.topic_names[topic.id] = name
        return topic


def placed(world: World, assignment: Mapping[int, Sequence[int]], **configs: str) -> Topic:
    """A topic of this run alone."""
    assert isinstance(world.side, ClusterSide)
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return world.side.place(world.new_name(), assignment, named)


def write(world: World, topic: Topic, records: bytes, *, node: int, partition: int = 0) -> None:
    """To the partition's leader, acknowledged by all."""
    with world.side.connect(node) as connection:
        body = wire.produce_body(topic.name, records, partition=partition)
        reader = connection.ask(wire.PRODUCE, wire.PRODUCE_VERSION, body)
    reader.number("i"), reader.string(), reader.unpack("ii")
    assert (error := reader.number("h")) == 0, f"error {error} writing to {topic.name}"
