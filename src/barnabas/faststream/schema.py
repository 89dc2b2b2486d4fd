"""AsyncAPI: channels of subscribers and publishers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import PublisherSpecificationConfig, SubscriberSpecificationConfig
from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec, SubscriberSpec
from faststream.specification.schema.bindings import ChannelBinding, kafka

from barnabas.faststream.config import KafkaBrokerConfig


@dataclass(kw_only=True)
class SubscriberSchemaConfig(SubscriberSpecificationConfig):
    topics: Sequence[str] = field(default_factory=list)


@dataclass(kw_only=True)
class PublisherSchemaConfig(PublisherSpecificationConfig):
    topic: str = ""


class KafkaSubscriberSpecification(SubscriberSpecification[KafkaBrokerConfig, SubscriberSchemaConfig]):
    @property
    def topics(self) -> list[str]:
        return [f"{self._outer_config.prefix}{topic}" for topic in dict.fromkeys(self.config.topics)]

    @property
    def channel_labels(self) -> list[str]:
        return self.topics

    def get_schema(self) -> dict[str, SubscriberSpec]:
        payloads, found = self.get_payloads(), {}
        for topic in self.topics:
            name = self._channel_key(topic, split=len(self.topics) > 1)
            message = Message(title=f"{name}:Message", payload=resolve_payloads(payloads))
            found[name] = SubscriberSpec(
                address=topic,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=_binding(topic),
            )
        return found


class KafkaPublisherSpecification(PublisherSpecification[KafkaBrokerConfig, PublisherSchemaConfig]):
    @property
    def topic(self) -> str:
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payload)
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=_binding(self.topic),
            )
        }


def _binding(topic: str) -> Any:
    return ChannelBinding(kafka=kafka.ChannelBinding(topic=topic, partitions=None, replicas=None))
