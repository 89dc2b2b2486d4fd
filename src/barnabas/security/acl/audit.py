"""Audit log of authorization decisions: principal, host, operation, resource and rule of each.

A line is a JSON object, so that no client-chosen name can end it or forge a field; a long name is cut.
Denials are logged at INFO, permissions at DEBUG. Nothing is formatted unless the level is on. The lines per
second of each kind are bounded: the next line shows how many were left out.
"""

from __future__ import annotations

import json
import logging

from barnabas.config.dynamic.loggers import AUDIT
from barnabas.core.clock import Clock
from barnabas.core.limits import AUDIT_LINES_PER_SECOND_MAX
from barnabas.core.reporting.log_text import cut
from barnabas.security.acl.rules import Decision
from barnabas.security.acl.vocabulary import Operation, ResourceType
from barnabas.security.identity.principal import KafkaPrincipal


class Audit:
    def __init__(self, clock: Clock, *, lines_per_second: int = AUDIT_LINES_PER_SECOND_MAX) -> None:
        self._clock = clock
        self._lines_per_second = lines_per_second
        self.logger = logging.getLogger(AUDIT)
        self._windows = {logging.INFO: _Window(), logging.DEBUG: _Window()}

    def note(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        decision: Decision,
    ) -> None:
        if self._shows(decision.is_allowed):
            because = str(decision.because)
            self._write(
                decision.is_allowed, principal, host, operation.name, resource_type.name, name, because
            )

    def note_http(
        self, principal: KafkaPrincipal, host: str, method: str, path: str, because: str, *, is_allowed: bool
    ) -> None:
        """Log a request for a path over HTTP; `because` gives the means or the failure of authentication."""
        if self._shows(is_allowed):
            self._write(is_allowed, principal, host, method, "HTTP", path, because)

    def _shows(self, is_allowed: bool) -> bool:
        return self.logger.isEnabledFor(_level(is_allowed))

    def _write(
        self,
        is_allowed: bool,
        principal: KafkaPrincipal,
        host: str,
        operation: str,
        resource_type: str,
        name: str,
        because: str,
    ) -> None:
        level = _level(is_allowed)
        left_out = self._windows[level].enter(self._clock.monotonic_ms(), self._lines_per_second)
        if left_out is None:
            return
        line: dict[str, object] = {
            "decision": "allowed" if is_allowed else "denied",
            "principal": cut(str(principal)),
            "host": host,
            "operation": operation,
            "resource_type": resource_type,
            "resource": cut(name),
            "rule": because,
        }
        if left_out:
            line["left_out"] = left_out
        self.logger.log(level, "%s", json.dumps(line))


def _level(is_allowed: bool) -> int:
    return logging.DEBUG if is_allowed else logging.INFO


class _Window:
    """Number of lines in the current second."""

    __slots__ = ("left_out", "lines", "since_ms")

    def __init__(self) -> None:
        self.since_ms = float("-inf")
        self.lines = 0
        self.left_out = 0

    def enter(self, now_ms: float, lines_max: int) -> int | None:
        """Number of lines left out before this one; None if this one is left out too."""
        if now_ms - self.since_ms >= 1_000:
            self.since_ms, self.lines = now_ms, 0
        if self.lines >= lines_max:
            self.left_out += 1
            return None
        self.lines += 1
        left_out, self.left_out = self.left_out, 0
        return left_out
