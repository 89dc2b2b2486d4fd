"""Expiry of producers: a log drops producers that wrote nothing for `producer.id.expiration.ms`.

A log with many producers does so over several turns of the loop, so that no request waits for all of them.
"""

from __future__ import annotations

from barnabas.core.limits import PRODUCERS_PER_TURN_MAX
from barnabas.storage.log.log import Log
from barnabas.storage.producers.producer_state import ProducerState


def remove_expired_producers(log: Log) -> None:
    """Drop expired producers, and waiting first writes of unknown ones that are old."""
    _remove_from(log, log.producers, list(log.producers.producers), 0)
    log.producers.waiting.forget_old()


def _remove_from(log: Log, producers: ProducerState, producer_ids: list[int], start: int) -> None:
    if log.is_closed or producers is not log.producers:
        return
    environment, end = log.environment, start + PRODUCERS_PER_TURN_MAX
    producers.remove_expired_among(
        producer_ids[start:end], environment.clock.now_ms(), environment.config.producer_id_expiration_ms
    )
    if end < len(producer_ids):
        environment.scheduler.after(0, lambda: _remove_from(log, producers, producer_ids, end))
