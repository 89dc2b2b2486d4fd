"""Audit lines of changes and of agents' questions: one for each, with the user, the host and the resource."""

from __future__ import annotations

import json
import logging
from typing import Final

from barnabas.config.dynamic.loggers import AUDIT
from barnabas.core.reporting.log_text import cut

logger: Final = logging.getLogger(AUDIT)


def note_change(
    user: str, host: str, operation: str, resource: str, failure: str | None, cluster: str = ""
) -> None:
    """Log a change at INFO. `cluster` is the name of one of several."""
    _note("CONSOLE", user, host, operation, resource, failure, cluster)


def note_question(
    user: str, host: str, operation: str, resource: str, failure: str | None, cluster: str = ""
) -> None:
    """Log a question of an agent at INFO."""
    _note("MCP", user, host, operation, resource, failure, cluster)


def _note(
    kind: str, user: str, host: str, operation: str, resource: str, failure: str | None, cluster: str
) -> None:
    """The line is JSON, so that no name can forge a field."""
    line = {
        "decision": "done" if failure is None else "failed",
        "principal": cut(f"User:{user}"),
        "host": host,
        "operation": operation,
        "resource_type": kind,
        "resource": cut(resource),
    }
    if cluster:
        line["cluster"] = cluster
    if failure is not None:
        line["because"] = cut(failure)
    logger.info("%s", json.dumps(line))
