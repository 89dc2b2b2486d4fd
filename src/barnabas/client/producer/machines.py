"""Machines of one producer, made from its settings."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.client.config.settings import ProducerSettings
from barnabas.client.core.metadata import Metadata
from barnabas.client.producer.core.accumulator import Accumulator, AccumulatorOptions
from barnabas.client.producer.core.buffer_memory import BufferMemory
from barnabas.client.producer.core.producer_state import ProducerState
from barnabas.client.producer.core.sender import Sender, SenderOptions
from barnabas.client.producer.core.sender_metrics import SenderMetrics
from barnabas.client.producer.core.transaction_state import TransactionState
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.core.ids import Randomness
from barnabas.core.reporting.metrics import Metrics
from barnabas.records.compression import Codec, compress


class Machines(NamedTuple):
    accumulator: Accumulator
    state: ProducerState
    sender: Sender

    @classmethod
    def of(
        cls,
        settings: ProducerSettings,
        metadata: Metadata,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
    ) -> Machines:
        codec = Codec[settings.compression_type.upper()]
        _check_codec(codec, settings.compression_level)
        memory = BufferMemory(settings.buffer_memory)
        accumulator = Accumulator(
            AccumulatorOptions(
                # A batch with room for more would take records above max.request.size.
                batch_bytes=min(settings.batch_size, settings.buffer_memory, settings.max_request_size),
                linger_ms=settings.linger_ms,
                codec=codec,
                compression_level=settings.compression_level,
                delivery_timeout_ms=settings.delivery_timeout_ms,
            ),
            memory,
            clock,
        )
        name = settings.transactional_id
        state = ProducerState(
            is_idempotent=settings.enable_idempotence,
            transaction=None if name is None else TransactionState(name),
        )
        in_flight_max = settings.max_in_flight_requests_per_connection
        options = SenderOptions(
            acks=settings.required_acks,
            in_flight_max=in_flight_max,
            request_bytes_max=settings.max_request_size,
            retries=settings.retries,
            backoff=Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms),
            keeps_order=in_flight_max == 1,
        )
        sender = Sender(
            options, accumulator, state, metadata, clock, randomness, SenderMetrics(metrics, memory)
        )
        return cls(accumulator, state, sender)


def _check_codec(codec: Codec, level: int | None) -> None:
    """Find a missing package or a refused level now, and not with the first batch."""
    name = codec.name.lower()
    try:
        compress(codec, b"", level)
    except ImportError as error:
        raise InvalidConfig(
            f"compression.type is {name}, and the package {error.name} is not installed: pip install"
            f" {error.name}, or choose gzip or none"
        ) from None
    except ValueError as error:
        raise InvalidConfig(f"compression.{name}.level is {level}: {error}") from None
