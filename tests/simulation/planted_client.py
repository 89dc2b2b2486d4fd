"""Planted bugs of the client library: the mistakes that authors of clients make."""

from __future__ import annotations

from tests.support.planting import Bug, Edit

CLIENT_BUGS = (
    # The producer
    Bug(
        "a producer counts a request without an answer as acknowledged",
        "barnabas.client.producer.core.sender",
        "            else:\n                self._refused(batch, error, now_ms)\n",
        "            else:\n                self._complete(batch, NO_OFFSET, NO_APPEND_TIME)\n",
    ),
    Bug(
        "a producer numbers a batch again with each attempt",
        "barnabas.client.producer.core.producer_state",
        "        if not self.is_idempotent or batch.has_sequence:\n            return\n"
        "        sequences = self.sequences(batch.topic_partition)\n",
        "        if not self.is_idempotent:\n            return\n"
        "        sequences = self.sequences(batch.topic_partition)\n        sequences.remove(batch)\n",
    ),
    Bug(
        "records of a producer never expire",
        "barnabas.client.producer.core.accumulator",
        "        return [batch for batch in left if batch.created_ms + timeout_ms <= now_ms]\n",
        "        return [batch for batch in left if timeout_ms < 0]\n",
        (
            Edit(
                "barnabas.client.producer.core.sender",
                "and batch.attempts < self._options.retries and not is_late",
                "and (batch.attempts < self._options.retries or is_late)",
            ),
            Edit(
                "barnabas.client.producer.core.accumulator",
                "        return oldest_ms + self.options.delivery_timeout_ms\n",
                "        return math.inf if oldest_ms else oldest_ms\n",
            ),
        ),
    ),
    Bug(
        "a sender waits for memory without end",
        "barnabas.client.producer.appending",
        "asyncio.timeout(max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1_000):\n",
        "asyncio.timeout(deadline_ms):\n",
    ),
    # Transactions
    Bug(
        "a commit does not wait for its records",
        "barnabas.client.producer.transactions",
        "            await self._records_are_done()\n",
        "            if not commit:\n                await self._records_are_done()\n",
    ),
    Bug(
        "an error in the block of a transaction commits it",
        "barnabas.client.producer.transaction_block",
        "            await self._transactions.abort()\n",
        "            await self._transactions.commit()\n",
    ),
    Bug(
        "the offsets of a group are not part of the transaction",
        "barnabas.client.producer.transactions",
        "        if not offsets:\n            return\n",
        "        if offsets:\n            return\n",
    ),
    # The consumer
    Bug(
        "a consumer of committed records does not drop aborted ones",
        "barnabas.client.consumer.core.fetch_plans",
        "        aborted = row.aborted_transactions if self._options.isolation else None\n",
        "        aborted = None\n",
    ),
    Bug(
        "a consumer commits what it has fetched",
        "barnabas.client.consumer.core.handing_out",
        "            state.at: CommittedOffset(state.position, state.metadata, state.epoch)\n",
        "            state.at: CommittedOffset(state.fetch_offset, state.metadata, state.epoch)\n",
    ),
    Bug(
        "a consumer hands out the whole batch in which its position is",
        "barnabas.client.consumer.core.decoding",
        "            if offset < first_offset:\n                continue\n",
        "",
    ),
    Bug(
        "an answer for an earlier position is taken",
        "barnabas.client.consumer.core.fetch_plans",
        "            if state.version == version and self._positions.get(state.at) is state:\n",
        "            if self._positions.get(state.at) is state or version < 0:\n",
        (
            Edit(
                "barnabas.client.consumer.core.positions",
                "        if can_validate and NO_EPOCH not in (self.fetch_epoch, leader.epoch):\n",
                "        self.refetch()\n"
                "        if can_validate and NO_EPOCH not in (self.fetch_epoch, leader.epoch):\n",
            ),
        ),
    ),
    Bug(
        "a fetch that waits takes the room of all others",
        "barnabas.client.consumer.core.fetch_plans",
        "        for broker_id in sorted(by_broker, key=lambda each: self._turns.get(each, 0)):\n",
        "        for broker_id in by_broker:\n",
    ),
    Bug(
        "a broker that knows no topic yet ends a commit",
        "barnabas.client.consumer.commits",
        "                    if not await self._may_be_new(unknown, patience):\n",
        "                    if patience:\n",
        (
            Edit(
                "barnabas.client.consumer.engine",
                "        kept = {at: each.offset for at, each in offsets.items() if at not in deleted}\n",
                "        kept = {at: each.offset for at, each in offsets.items()}\n",
            ),
        ),
    ),
    Bug(
        "a closed consumer leaves the task of its membership",
        "barnabas.client.consumer.engine",
        "            await self._coordination.leave(left_ms)\n            await self._coordination.stop()\n",
        "            await self._coordination.leave(left_ms)\n",
    ),
    # Processing
    Bug(
        "a record whose handler failed counts as done",
        "barnabas.client.processing.processing",
        "            self._failed(job, error)\n        self._source.wake()\n\n    def _done",
        "            self._done(job)\n        self._source.wake()\n\n    def _done",
    ),
    Bug(
        "a commit passes over records whose handlers run",
        "barnabas.client.processing.core.offset_ledger",
        "        if first is not None:\n            return first\n        if self._earlier",
        "        if self._earlier",
    ),
    Bug(
        "records of a key have no lane",
        "barnabas.client.processing.core.lanes",
        "            return (job.at, job.record.key)\n",
        "            return (job.at, self._count)\n",
    ),
)
