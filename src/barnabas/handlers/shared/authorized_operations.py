"""Authorized operations of the client, as bits of one number: bit n is operation n."""

from __future__ import annotations

from barnabas.requests.context import RequestContext
from barnabas.security.acl.vocabulary import CLUSTER_NAME, Operation, ResourceType

NOT_ASKED = -(1 << 31)
"""Value of the field when the client did not ask for it."""


def cluster_operations(context: RequestContext) -> int:
    """Zero for a client that may not describe the cluster."""
    if not context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return 0
    return context.authorized_operations(ResourceType.CLUSTER, CLUSTER_NAME)
