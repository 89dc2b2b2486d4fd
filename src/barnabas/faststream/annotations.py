"""Annotations of handlers' arguments: `async def handle(body: str, message: KafkaMessage): ...`"""

from __future__ import annotations

from typing import Annotated

from faststream import Context

from barnabas.faststream import broker, message

KafkaMessage = Annotated[message.KafkaMessage, Context("message")]
KafkaBroker = Annotated[broker.KafkaBroker, Context("broker")]

__all__ = ["KafkaBroker", "KafkaMessage"]
