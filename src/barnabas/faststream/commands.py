"""Publish commands: what goes from a publisher to the producer, and the response of a handler with a key."""

from __future__ import annotations

from typing import Any

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response


class KafkaResponse(Response):
    """Result of a handler, or a message of a batch, with a key."""

    def __init__(
        self,
        body: Any,
        *,
        key: bytes | str | None = None,
        headers: dict[str, Any] | None = None,
        timestamp_ms: int | None = None,
        correlation_id: str | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.key = key
        self.timestamp_ms = timestamp_ms

    def get_publish_key(self) -> Any:
        return self.key

    def as_publish_command(self) -> KafkaPublishCommand:
        return KafkaPublishCommand(
            self.body,
            topic="",
            key=self.key,
            headers=self.headers,
            timestamp_ms=self.timestamp_ms,
            correlation_id=self.correlation_id,
        )


class KafkaPublishCommand(BatchPublishCommand):
    def __init__(
        self,
        *bodies: Any,
        topic: str,
        publish_type: PublishType = PublishType.PUBLISH,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        no_confirm: bool = False,
        timeout: float = 0.5,
    ) -> None:
        first, *others = bodies or (None,)
        super().__init__(
            first,
            *others,
            _publish_type=publish_type,
            destination=topic,
            headers=headers,
            correlation_id=correlation_id,
            reply_to=reply_to,
        )
        self.key = key
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.no_confirm = no_confirm
        self.timeout = timeout

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> KafkaPublishCommand:
        """The command of a handler's result."""
        if isinstance(cmd, KafkaPublishCommand):
            return cmd
        body, others = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *others,
            topic=cmd.destination,
            publish_type=cmd.publish_type,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
        )

    def own_headers(self) -> dict[str, str]:
        found = {"correlation_id": self.correlation_id or "", "reply_to": self.reply_to}
        return {name: text for name, text in found.items() if text} | self.headers
