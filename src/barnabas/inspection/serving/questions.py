"""Questions of the inspection socket by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from barnabas.core.steps import Sliced
from barnabas.inspection.answers.clients import clients
from barnabas.inspection.answers.groups import committed, group, groups, lag_total
from barnabas.inspection.answers.log_picture import log_picture
from barnabas.inspection.answers.overview import overview
from barnabas.inspection.answers.topics import topic, topic_parts, topic_totals, topics
from barnabas.inspection.answers.transactions import open_producers, transactions
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.wire import Question

Answer = Callable[[Inspected, Question], Sliced[dict[str, Any]]]

QUESTIONS: Mapping[str, Answer] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            overview,
            topics,
            topic_parts,
            topic_totals,
            topic,
            groups,
            lag_total,
            group,
            committed,
            log_picture,
            transactions,
            open_producers,
            clients,
        )
    }
)
