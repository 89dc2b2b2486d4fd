"""`async with producer.transaction()`: commits at the end, and aborts on an exception."""

from __future__ import annotations

from types import TracebackType

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.producer.core.transaction_state import TransactionStatus
from barnabas.client.producer.transactions import Transactions
from barnabas.core.errors import KafkaError


class TransactionBlock:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def __aenter__(self) -> None:
        await self._transactions.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A failed commit is aborted, and its error is raised. The error of the block is never replaced."""
        if error is None:
            try:
                await self._transactions.commit()
            except Exception as failure:
                await self._abort(failure)
                raise
        else:
            await self._abort(error)

    async def _abort(self, reason: BaseException) -> None:
        if self._transactions.state.status not in (
            TransactionStatus.IN_TRANSACTION,
            TransactionStatus.ABORTABLE_ERROR,
        ):
            return  # fenced, or the commit may still succeed
        try:
            await self._transactions.abort()
        except (KafkaError, ClusterUnreachable) as failure:
            reason.add_note(f"the abort of the transaction failed too: {failure}")
