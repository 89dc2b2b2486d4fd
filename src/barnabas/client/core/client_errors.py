"""Errors of the client itself, which no broker sends. Errors of the protocol are in `core.errors`.

A wait that takes too long raises REQUEST_TIMED_OUT, a record that is too large MESSAGE_TOO_LARGE, a wrong
setting INVALID_CONFIG, as with Apache Kafka's client.
"""

from __future__ import annotations


class ClientClosed(Exception):
    """The producer or consumer is closed, or was closed before the call was done."""


class TransactionAborted(Exception):
    """The record belonged to a transaction that was aborted before the record was sent."""


class IllegalState(Exception):
    """A call that the state does not allow, such as a commit without a transaction."""
