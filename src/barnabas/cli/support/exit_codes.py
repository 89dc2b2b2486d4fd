"""Exit codes of commands. One line on stderr gives the reason and the remedy."""

from __future__ import annotations

from typing import IO, Any

import click

from barnabas.core.errors import (
    DelegationTokenNotFound,
    GroupIdNotFound,
    KafkaError,
    LogDirNotFound,
    ResourceNotFound,
    TopicAlreadyExists,
    TransactionalIdNotFound,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

INTERRUPTED = 130

EPILOG = """\
\b
Exit codes:
    0  done
    1  failed; the reason is on stderr
    2  wrong usage or invalid configuration
    3  no broker could be reached
    4  the topic, group, broker or file does not exist
    5  the topic or pipeline exists already
  130  interrupted
"""

_MISSING = (
    DelegationTokenNotFound,
    UnknownTopicOrPartition,
    UnknownTopicId,
    ResourceNotFound,
    GroupIdNotFound,
    LogDirNotFound,
    TransactionalIdNotFound,
)


class Failure(click.ClickException):
    """Ends the command with a line on stderr; the subclasses are the exit codes."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"barnabas: {' '.join(self.message.split())}", file=file, err=file is None)


class InvalidSettings(Failure):
    exit_code = 2


class Unreachable(Failure):
    exit_code = 3


class NotFound(Failure):
    exit_code = 4


class AlreadyExists(Failure):
    exit_code = 5


def failure_for(error: KafkaError) -> Failure:
    """Exit code and message for an error of a broker."""
    if isinstance(error, _MISSING):
        return NotFound(error.message)
    if isinstance(error, TopicAlreadyExists):
        return AlreadyExists(error.message)
    name = error.protocol_name()
    return Failure(name if error.message == name else f"{error.message} ({name})")
