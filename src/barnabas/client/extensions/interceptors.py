"""Interceptors: objects that see every record of a producer or consumer, for tracing, masking and counting.

Derive from `ProducerInterceptor` or `ConsumerInterceptor`, and override what is needed. Interceptors run in
the order of the list, each with the result of the one before. An interceptor that raises is logged and
skipped: a broken interceptor does not stop records, as in Java.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.client.extensions.records import ProducerRecord, Record, RecordMetadata
from barnabas.core.clock import SystemClock
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

logger = logging.getLogger(__name__)
_faults = RateLimitedLogger(logger, SystemClock())


class ProducerInterceptor:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Record to send instead of `record`, before its key and value are serialized."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """One record is acknowledged, or has failed. Called on the loop: do not block."""

    def on_outcome(
        self, record: ProducerRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        """The same with the record, as it left the last interceptor (KIP-512 has its headers)."""
        del record
        self.on_acknowledgement(metadata, error)


class ConsumerInterceptor:
    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        """Records to hand out instead of `records`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Offsets are committed."""


class ProducerInterceptors:
    """A chain of interceptors whose faults stop no record."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for each in self._interceptors:
            try:
                record = each.on_send(record)
            except Exception as error:  # noqa: BLE001 - code of an application
                _report(each, error)
        return record

    def on_outcome(
        self, record: ProducerRecord, metadata: RecordMetadata | None, error: Exception | None
    ) -> None:
        for each in self._interceptors:
            try:
                each.on_outcome(record, metadata, error)
            except Exception as fault:  # noqa: BLE001 - code of an application
                _report(each, fault)


class ConsumerInterceptors:
    """A chain of interceptors whose faults stop no record."""

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: Sequence[Record[Any, Any]]) -> Sequence[Record[Any, Any]]:
        for each in self._interceptors:
            try:
                records = each.on_consume(records)
            except Exception as error:  # noqa: BLE001 - code of an application
                _report(each, error)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        for each in self._interceptors:
            try:
                each.on_commit(offsets)
            except Exception as error:  # noqa: BLE001 - code of an application
                _report(each, error)


def _report(interceptor: object, error: Exception) -> None:
    kind = type(interceptor).__name__
    _faults.warn("interceptor", "interceptor %s raises %r: the record goes on without it", kind, error)
