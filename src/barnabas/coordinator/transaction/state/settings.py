"""Configuration of the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.config.broker_config import BrokerConfig

TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
EPOCH_BUMP_VERSION: Final = 2
"""Transaction version from which every transaction has a producer epoch of its own (KIP-890). Nothing late
can touch the next transaction, and a write adds its partition to the transaction."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_timeout_ms: int
    id_expiration_ms: int
    abort_timed_out_interval_ms: int
    remove_expired_interval_ms: int
    transaction_version: int = EPOCH_BUMP_VERSION
    """Level of the `transaction.version` feature in ApiVersions."""

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
            abort_timed_out_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            remove_expired_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        )
