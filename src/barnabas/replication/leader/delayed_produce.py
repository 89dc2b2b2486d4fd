"""Produce request that waits until its records are replicated or durable.

It is complete when each of its partitions is, in one of these ways:

- A. The partition is no longer led here, was led elsewhere meanwhile, or may be: the producer has to look for
  the leader. A new epoch alone, as when a replica shuts down, is not a reason.
- B. The leader has the records and
    - B.1 the disk failed first: the request fails, for the records will never be safe here;
    - B.2 the ISR shrank below the minimum after the append: nothing is committed then, and the producer need
      not wait for the timeout;
    - B.3 they are replicated as far as the producer asked: success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.core.errors import (
    NONE,
    KafkaStorageError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from barnabas.core.ids import ACKS_ALL
from barnabas.purgatory.purgatory import DelayedOperation
from barnabas.replication.partition.partition import Partition


class PendingAck:
    """One appended partition of the request, and its outcome once the request is complete."""

    __slots__ = ("end_offset", "error_code", "is_done", "leader_epoch", "partition")

    def __init__(self, partition: Partition, end_offset: int, leader_epoch: int | None = None) -> None:
        """`leader_epoch` is that of the append; without it, the current one."""
        self.partition = partition
        self.leader_epoch = partition.leadership.leader_epoch if leader_epoch is None else leader_epoch
        self.end_offset = end_offset
        self.is_done = False
        self.error_code = RequestTimedOut.code
        """NONE once acknowledged; REQUEST_TIMED_OUT if the timeout comes first."""


class DelayedProduce(DelayedOperation):
    __slots__ = ("_pending", "_required_acks", "_respond")

    def __init__(
        self,
        timeout_ms: float,
        required_acks: int,
        pending: Sequence[PendingAck],
        respond: Callable[[], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._required_acks = required_acks
        self._pending = pending
        self._respond = respond

    def try_complete(self) -> bool:
        waiting = False
        for ack in self._pending:
            if not ack.is_done:
                self._settle(ack)
                waiting = waiting or not ack.is_done
        return False if waiting else self.force_complete()

    def _settle(self, ack: PendingAck) -> None:
        partition = ack.partition
        led = partition.leadership
        if not led.is_leader or ack.leader_epoch < led.led_since_epoch or not led.has_lease:
            ack.error_code = NotLeaderOrFollower.code
            ack.is_done = True
        elif self._required_acks == ACKS_ALL and not partition.has_enough_replicas:
            ack.error_code = NotEnoughReplicasAfterAppend.code
            ack.is_done = True
        elif partition.is_acknowledged(ack.end_offset, self._required_acks):
            ack.error_code = NONE
            ack.is_done = True
        elif partition.log.log_directory.failure is not None:
            ack.error_code = KafkaStorageError.code
            ack.is_done = True

    @property
    def waits_for_followers(self) -> bool:
        """False if it waits for the local disk only."""
        return any(not ack.is_done and len(ack.partition.leadership.isr) > 1 for ack in self._pending)

    def on_complete(self) -> None:
        self._respond()
