"""Pages of the console, a file for each section. A new page is a file here and a line in `SECTIONS`."""

from __future__ import annotations

from barnabas.console.pages import (
    api_page,
    clients,
    cluster,
    group,
    groups,
    messages,
    overview,
    protobuf,
    record,
    statistics,
    topic,
    topics,
    transactions,
)
from barnabas.console.pages.partition import log_picture
from barnabas.console.pages.pipelines import editing, listing, pipeline
from barnabas.console.pages.schemas import changes, subjects
from barnabas.console.pages.security import access_rules, quotas, tokens, users

SECTIONS = (
    overview.SECTION,
    topics.SECTION,
    topic.SECTION,
    messages.SECTION,
    record.SECTION,
    statistics.SECTION,
    protobuf.SECTION,
    log_picture.SECTION,
    groups.SECTION,
    group.SECTION,
    transactions.SECTION,
    clients.SECTION,
    subjects.SECTION,
    changes.SECTION,
    listing.SECTION,
    editing.SECTION,
    pipeline.SECTION,
    access_rules.SECTION,
    users.SECTION,
    quotas.SECTION,
    tokens.SECTION,
    cluster.SECTION,
    api_page.SECTION,
)
"""In the order of the navigation. The first route that fits a path serves it."""
