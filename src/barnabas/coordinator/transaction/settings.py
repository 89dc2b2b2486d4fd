"""The settings that transactions are run by; `node` fills them in from the broker's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
EPOCH_BUMP_VERSION: Final = 2
"""From this transaction version on every transaction has a producer epoch of its own (KIP-890), so nothing
that is late can touch the next one; and a write adds its partition to the transaction by itself."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_timeout_ms: int = 15 * 60 * 1000
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 60 * 60 * 1000
    transaction_version: int = EPOCH_BUMP_VERSION
    """The level of the feature that clients are told of."""
