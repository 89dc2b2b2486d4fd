"""ListPartitionReassignments (46), v0. Gaps: none; on one node no partition ever moves."""

from __future__ import annotations

from barnabas.handlers.context import RequestContext
from barnabas.handlers.registry import Api
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle_list_partition_reassignments(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001 - whatever is asked for, nothing moves
    context: RequestContext,  # noqa: ARG001
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


LIST_PARTITION_REASSIGNMENTS = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=range(1), handle=handle_list_partition_reassignments
)
