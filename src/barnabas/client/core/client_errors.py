"""Errors of the client itself, which no broker sends. Errors of the protocol are in `core.errors`.

A wait that takes too long raises REQUEST_TIMED_OUT, a record that is too large MESSAGE_TOO_LARGE, a wrong
setting INVALID_CONFIG, as with Apache Kafka's client.
"""

from __future__ import annotations


class ClientClosed(Exception):
    """The producer or consumer is closed, or was closed before the call was done."""


class BackgroundFailed(Exception):
    """A background task of the client ended with an unexpected error, its cause. Close the client."""


class SendCancelled(Exception):
    """The `send` of the record was cancelled while it waited. Interceptors receive it; no call raises it."""


class TransactionAborted(Exception):
    """The record belonged to a transaction that was aborted before the record was sent."""


class IllegalState(Exception):
    """A call that the state does not allow, such as a commit without a transaction."""


class CommitFailed(Exception):
    """Offsets were not committed: the group has rebalanced, and another member may own the partitions."""


class NoCommittedOffset(Exception):
    """A partition has no committed offset, and auto.offset.reset is none."""


class LogTruncated(Exception):
    """The log of a partition was truncated below the consumer's position, and auto.offset.reset is none."""


class DeserializationFailed(Exception):
    """A deserializer raised an error for a record. Seek past the record to continue without it."""
