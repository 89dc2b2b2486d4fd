"""Channel of the controller to its own broker: direct calls, in their order.

Requests reach the same code as those from a socket, and get the same answers.
"""

from __future__ import annotations

from typing import Any, TypeVar

from barnabas.handlers.leader_and_isr import lead_and_follow
from barnabas.handlers.stop_replica import stop_replicas
from barnabas.handlers.update_metadata import update_metadata
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.protocol.schema.message import Message
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.services import Services

Response = TypeVar("Response", bound=Message)


class OwnBroker:
    """A `node.membership.controller_channels.BrokerChannel`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def send(self, request: Message, response_class: type[Response]) -> Response:
        try:
            response = await self._carry_out(request)
        except Exception as error:  # noqa: BLE001 - as a socket would, the answer says what went wrong
            response = response_class()
            vars_of: Any = response
            vars_of.error_code = as_kafka_error(error, "a request of the controller").code
        assert isinstance(response, response_class)
        return response

    async def _carry_out(self, request: Message) -> Message:
        match request:
            case LeaderAndIsrRequest():
                return await lead_and_follow(request, self._services)
            case UpdateMetadataRequest():
                return update_metadata(request, self._services)
            case StopReplicaRequest():
                return await stop_replicas(request, self._services)
        raise AssertionError(f"{type(request).__name__} is not a request of a controller")

    def close(self) -> None:
        """A local channel holds no connection."""
