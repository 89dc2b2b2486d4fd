"""Broker of FastStream on this client library. Extra `faststream`.

    from faststream import FastStream
    from barnabas.faststream import KafkaBroker

    broker = KafkaBroker("127.0.0.1:9092")
    app = FastStream(broker)

    @broker.subscriber("orders", group_id="billing", max_workers=64, dead_letters="orders-dead")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

FastStream acknowledges messages, Kafka commits offsets. Here each record is acknowledged individually, by
`Consumer.process`: handlers run concurrently, records of one key in order. An acknowledged record does not
come again after a restart, also when records before it are unfinished.

- `subscribers`: the ways of reading, and what ack, nack and reject do.
- `publishers`, `commands`: the ways of writing.
- `broker`, `registrator`, `config`: what FastStream asks of a broker.
- `schema`: AsyncAPI. `testing`: the broker of tests, in memory.
"""

from __future__ import annotations

from barnabas.core.optional_dependencies import MissingExtra, install_command

try:
    import faststream as _faststream
except ImportError as error:
    raise MissingExtra(f"FastStream is not installed: {install_command('faststream')}") from error

from barnabas.faststream.broker import KafkaBroker, KafkaRouter
from barnabas.faststream.commands import KafkaPublishCommand, KafkaResponse
from barnabas.faststream.message import KafkaMessage
from barnabas.faststream.publishers import KafkaPublisher
from barnabas.faststream.testing import TestKafkaBroker

assert _faststream is not None

__all__ = [
    "KafkaBroker",
    "KafkaMessage",
    "KafkaPublishCommand",
    "KafkaPublisher",
    "KafkaResponse",
    "KafkaRouter",
    "TestKafkaBroker",
]
