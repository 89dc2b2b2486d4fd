"""The transaction coordinator as the broker's handlers see it.

Each request goes to the shard of its transactional id's partition. Every method calls back exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from barnabas.coordinator.decision import Decision
from barnabas.coordinator.regex import Regex
from barnabas.coordinator.routing import Gathering, partition_of
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transaction.metadata import TransactionMetadata
from barnabas.coordinator.transaction.rules import ProducerIdAndEpoch
from barnabas.coordinator.transaction.settings import TransactionSettings
from barnabas.coordinator.transaction.shard import TransactionShard
from barnabas.coordinator.transaction.states import STATES_BY_NAME
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    UnknownServerError,
)
from barnabas.core.ids import TopicPartition
from barnabas.core.sweeping import complain
from barnabas.protocol.messages import describe_transactions, list_transactions
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

TRANSACTION_TOPIC = "__transaction_state"
NO_PARTITION = -1


class TransactionCoordinator:
    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        settings: TransactionSettings,
        clock: Clock,
        partition_count: Callable[[], int | None],
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self._clock = clock
        self._partition_count = partition_count

    def partition_for(self, transactional_id: str) -> int:
        """The partition that the id belongs to; none that exists while nobody can say how many there are."""
        count = self._partition_count()
        return NO_PARTITION if count is None else partition_of(transactional_id, count)

    def init_producer_id(
        self, request: InitProducerIdRequest, respond: Callable[[InitProducerIdResponse], None]
    ) -> None:
        def refuse(error: KafkaError) -> None:
            respond(InitProducerIdResponse(error_code=error.code, producer_epoch=-1))

        if not request.transactional_id:
            refuse(_no_id())
            return
        self.runtime.run(
            self.partition_for(request.transactional_id),
            lambda shard: shard.init_producer_id(request),
            respond,
            refuse,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        answer: Callable[[KafkaError | None], None],
        *,
        client_transaction_version: int,
    ) -> None:
        """Make the partitions part of the producer's transaction, which begins with the first of them.

        If the last transaction is still being completed, wait a moment for that."""
        if not transactional_id:
            answer(_no_id())
            return
        added = frozenset(partitions)
        partition = self.partition_for(transactional_id)

        def done(error: KafkaError | None) -> None:
            answer(_too_many(transactional_id, error) if isinstance(error, MessageTooLarge) else error)

        def attempt(refuse: Callable[[KafkaError], None]) -> None:
            self.runtime.run(
                partition,
                lambda shard: shard.add_partitions(
                    transactional_id, producer, added, client_transaction_version
                ),
                lambda _: done(None),
                refuse,
            )

        def wait_once(error: KafkaError) -> None:
            if not isinstance(error, ConcurrentTransactions):
                done(error)
                return
            is_waiting = False

            def wait(shard: TransactionShard) -> Decision[None]:
                nonlocal is_waiting
                is_waiting = True
                return shard.await_completion(transactional_id, lambda: attempt(done))

            def refuse(error: KafkaError) -> None:
                # Whoever waits is answered by the completion, however long replication takes.
                if not is_waiting:
                    done(error)

            self.runtime.run(partition, wait, done, refuse)

        attempt(wait_once)

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        done: Callable[[frozenset[TopicPartition]], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """Find the partitions that are not part of the producer's open transaction."""
        if not transactional_id:
            refuse(_no_id())
            return
        asked = frozenset(partitions)
        self.runtime.run(
            self.partition_for(transactional_id),
            lambda shard: shard.verify(transactional_id, producer, asked),
            done,
            refuse,
        )

    def end(
        self,
        request: EndTxnRequest,
        respond: Callable[[EndTxnResponse], None],
        *,
        client_transaction_version: int,
    ) -> None:
        def refuse(error: KafkaError) -> None:
            respond(EndTxnResponse(error_code=error.code))

        if not request.transactional_id:
            refuse(_no_id())
            return
        self.runtime.run(
            self.partition_for(request.transactional_id),
            lambda shard: shard.end(request, client_transaction_version),
            respond,
            refuse,
        )

    # Administration

    def describe(
        self,
        transactional_ids: Sequence[str],
        respond: Callable[[list[describe_transactions.TransactionState]], None],
    ) -> None:
        gathering = Gathering(len(transactional_ids), respond)
        for place, transactional_id in enumerate(transactional_ids):
            self._describe_one(place, transactional_id, gathering)

    def _describe_one(
        self,
        place: int,
        transactional_id: str,
        gathering: Gathering[describe_transactions.TransactionState],
    ) -> None:
        def refuse(error: KafkaError) -> None:
            gathering.put(
                place,
                describe_transactions.TransactionState(
                    error_code=error.code, transactional_id=transactional_id
                ),
            )

        if not transactional_id:
            refuse(_no_id())
            return
        self.runtime.run(
            self.partition_for(transactional_id),
            lambda shard: shard.describe(transactional_id),
            lambda metadata: gathering.put(place, _described(metadata)),
            refuse,
        )

    def list_all(
        self,
        request: list_transactions.ListTransactionsRequest,
        respond: Callable[[list_transactions.ListTransactionsResponse], None],
    ) -> None:
        """The transactional ids of every partition that is coordinated here."""
        wanted = self._filter_of(request)
        partitions = self.runtime.partitions()
        unknown = [name for name in request.state_filters if name not in STATES_BY_NAME]
        errors: list[KafkaError] = []

        def done(parts: Sequence[Sequence[TransactionMetadata]]) -> None:
            response = list_transactions.ListTransactionsResponse(unknown_state_filters=unknown)
            if errors:
                response.error_code = errors[0].code
            else:
                response.transaction_states = [_listed(each) for part in parts for each in part]
            respond(response)

        gathering: Gathering[Sequence[TransactionMetadata]] = Gathering(len(partitions), done)
        for place, partition in enumerate(partitions):
            self._list_one(place, partition, wanted, gathering, errors)

    def _list_one(
        self,
        place: int,
        partition: int,
        wanted: Callable[[TransactionMetadata], bool],
        gathering: Gathering[Sequence[TransactionMetadata]],
        errors: list[KafkaError],
    ) -> None:
        def refuse(error: KafkaError) -> None:
            if not isinstance(error, NotCoordinator):
                errors.append(error)
            gathering.put(place, ())

        self.runtime.run(
            partition,
            lambda shard: shard.find(wanted),
            lambda found: gathering.put(place, found),
            refuse,
        )

    def _filter_of(
        self, request: list_transactions.ListTransactionsRequest
    ) -> Callable[[TransactionMetadata], bool]:
        states = {STATES_BY_NAME[name] for name in request.state_filters if name in STATES_BY_NAME}
        producer_ids = set(request.producer_id_filters)
        pattern = Regex(request.transactional_id_pattern) if request.transactional_id_pattern else None
        duration_ms = request.duration_filter
        now_ms = self._clock.now_ms()

        def wanted(metadata: TransactionMetadata) -> bool:
            return (
                (not request.state_filters or metadata.state in states)
                and (not producer_ids or metadata.producer_id in producer_ids)
                and (duration_ms < 0 or now_ms - metadata.start_timestamp_ms > duration_ms)
                and (pattern is None or pattern.matches(metadata.transactional_id))
            )

        return wanted


def _described(metadata: TransactionMetadata) -> describe_transactions.TransactionState:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return describe_transactions.TransactionState(
        transactional_id=metadata.transactional_id,
        transaction_state=metadata.state.shown_as,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_timestamp_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def _listed(metadata: TransactionMetadata) -> list_transactions.TransactionState:
    return list_transactions.TransactionState(
        transactional_id=metadata.transactional_id,
        producer_id=metadata.producer_id,
        transaction_state=metadata.state.shown_as,
    )


def _too_many(transactional_id: str, error: MessageTooLarge) -> KafkaError:
    """The producer has sent nothing that is too large, and must not try it in smaller pieces."""
    complain("adding partitions to transactional id", transactional_id, error)
    return UnknownServerError(f"the transaction has too many partitions: {error.message}")


def _no_id() -> KafkaError:
    return InvalidRequest("a transactional id has at least one character")
