"""Metrics that clients report (KIP-714): the last value of each."""

from __future__ import annotations

from typing import Any, Final

from barnabas.core.steps import Sliced
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.wire import Question
from barnabas.security.acl.vocabulary import ResourceType

SERIES_MAX: Final = 100_000
TEXT_CHARACTERS_MAX: Final = 4 * 1024 * 1024
"""Names and attributes of all series together: clients choose them."""


def clients(inspected: Inspected, question: Question) -> Sliced[dict[str, Any]]:
    """Clients that have pushed something. Needs DESCRIBE on the cluster."""
    inspected.viewer(question).require(ResourceType.CLUSTER)
    rows = []
    series_left, characters_left = SERIES_MAX, TEXT_CHARACTERS_MAX
    for each in inspected.broker.telemetry:
        if not each.last_push_ms:
            continue
        metrics = []
        for (name, labels), value in list(each.series.items())[:series_left]:
            characters_left -= len(name) + sum(len(key) + len(text) for key, text in labels)
            if characters_left < 0:
                break
            metrics.append([name, value, labels])
            yield
        series_left -= len(metrics)
        reporter = each.reporter
        rows.append(
            {
                "instance_id": str(each.instance_id),
                "client_id": reporter.client_id,
                "host": reporter.host,
                "user": reporter.owner.principal,
                "software": " ".join(reporter.software),
                "last_push_ms": each.last_push_ms,
                "metrics": metrics,
            }
        )
    return {"rows": rows}
