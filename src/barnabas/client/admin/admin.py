"""Admin: one method for each administrative API, with typed results and an error for each resource.

    async with Admin("127.0.0.1:9092") as admin:
        await admin.create_topics([NewTopic("orders", partitions=3)])

A call about several resources returns results by resource, or raises `SomeFailed` (`calls.per_resource`).
Transient errors are retried within `default.api.timeout.ms`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from barnabas.client.admin.acls import Acls
from barnabas.client.admin.calls import cluster as cluster_calls
from barnabas.client.admin.calls import groups as group_calls
from barnabas.client.admin.calls import topics as topic_calls
from barnabas.client.admin.calls.cluster import ClusterDescription, LogDir
from barnabas.client.admin.calls.per_resource import of_each, settle
from barnabas.client.admin.calls.topics import CreatedTopic, NewPartitions, NewTopic
from barnabas.client.admin.client_quotas import Entity, EntityQuotas, alter_quotas, describe_quotas
from barnabas.client.admin.delegation_tokens import BY_THE_BROKER, Token, Tokens
from barnabas.client.admin.elections import ElectionType, elect_leaders, is_elected
from barnabas.client.admin.groups import GroupDescription, GroupListing, Groups
from barnabas.client.admin.reassignment import Move, Reassignments
from barnabas.client.admin.scram_users import ScramUser, ScramUsers
from barnabas.client.admin.topic_records import delete_records
from barnabas.client.admin.topics_and_configs import Setting, TopicAdmin
from barnabas.client.admin.transactions import (
    OpenTransaction,
    TransactionDescription,
    TransactionListing,
    Transactions,
)
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import Connect, connect_by_socket
from barnabas.client.config.settings import AdminSettings
from barnabas.client.core.metadata import Topic
from barnabas.client.core.steps import Steps
from barnabas.client.core.transaction_steps import begin
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError, error_for
from barnabas.core.ids import Randomness, TopicPartition
from barnabas.protocol.config_numbers import ResourceType
from barnabas.security.acl.bindings import AclBinding, AclFilter
from barnabas.security.credentials.scram_credential import ScramMechanism
from barnabas.security.identity.principal import KafkaPrincipal

T = TypeVar("T")
ConfigResource = tuple[ResourceType, str]

FENCING_TIMEOUT_MS = 60_000


class Admin:
    def __init__(
        self,
        config: str | Sequence[str] | Mapping[str, Any] | None = None,
        /,
        *,
        file: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        connect: Connect = connect_by_socket,
        **keywords: Any,
    ) -> None:
        """`config` has the bootstrap servers, or Kafka's properties; settings come as keywords too."""
        self.settings = AdminSettings.given(config, file=file, environment=environment, keywords=keywords)
        self._cluster = ClusterClient.of(
            self.settings,
            clock=clock or SystemClock(),
            randomness=randomness or random.SystemRandom(),
            retry_timeout_ms=self.settings.default_api_timeout_ms,
            retries_max=self.settings.retries,
            connect=connect,
        )
        self._topics = TopicAdmin(self._cluster)
        self._groups = Groups(self._cluster)
        self._acls = Acls(self._cluster)
        self._tokens = Tokens(self._cluster)
        self._users = ScramUsers(self._cluster)
        self._moves = Reassignments(self._cluster)
        self._transactions = Transactions(self._cluster)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._cluster.close()

    @property
    def cluster(self) -> ClusterClient:
        """Client of the cluster below this one, for requests that have no method here."""
        return self._cluster

    async def _run(self, steps: Steps[T]) -> T:
        return await self._cluster.run(steps)

    async def _retry(self, attempt: Callable[[], Steps[T]]) -> T:
        return await self._cluster.run_with_retries(attempt, unknown_topic_timeout_ms=0)

    @property
    def _timeout_ms(self) -> int:
        return self.settings.request_timeout_ms

    # --- topics ---

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic]:
        return await self._run(
            topic_calls.create_topics(
                self._cluster.state, list(topics), self._timeout_ms, validate_only=validate_only
            )
        )

    async def wait_until_known(self, name: str) -> None:
        """Wait until every broker that answers knows a new topic and its leaders, five seconds at most."""
        await self._run(topic_calls.wait_until_known(self._cluster.state, name))

    async def delete_topics(self, names: Iterable[str]) -> dict[str, None]:
        return await self._run(topic_calls.delete_topics(self._cluster.state, list(names), self._timeout_ms))

    async def create_partitions(
        self, counts: Mapping[str, int | NewPartitions], *, validate_only: bool = False
    ) -> dict[str, None]:
        """Increase the number of partitions of each topic to a total."""
        return await self._run(
            topic_calls.create_partitions(
                self._cluster.state, counts, self._timeout_ms, validate_only=validate_only
            )
        )

    async def list_topics(self, *, include_internal: bool = False) -> list[Topic]:
        found = await self._topics.list_topics()
        return [topic for topic in found if include_internal or not topic.is_internal]

    async def describe_topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return await of_each({name: self._describe_topic(name) for name in names})

    async def _describe_topic(self, name: str) -> Topic:
        (topic,) = await self._topics.describe_topics([name])
        return topic

    # --- records and offsets ---

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """First offset at or after each timestamp, or at `EARLIEST` (-2) or `LATEST` (-1); -1 for none."""
        isolation = 1 if read_committed else 0
        return await self._retry(lambda: self._cluster.state.list_offsets(wanted, isolation=isolation))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before each offset; returns the new first offsets."""
        by_topic: dict[str, dict[int, int]] = {}
        for at, offset in before.items():
            by_topic.setdefault(at.topic, {})[at.partition] = offset
        found = await of_each(
            {name: delete_records(self._cluster, name, offsets) for name, offsets in by_topic.items()}
        )
        return {
            TopicPartition(name, partition): offset
            for name, offsets in found.items()
            for partition, offset in offsets.items()
        }

    # --- settings ---

    async def describe_configs(
        self, resources: Iterable[ConfigResource], keys: Sequence[str] | None = None
    ) -> dict[ConfigResource, list[Setting]]:
        return await of_each(
            {(kind, name): self._topics.describe_configs(kind, name, keys) for kind, name in resources}
        )

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> dict[ConfigResource, None]:
        """Change settings of each resource; None deletes one. The others stay (IncrementalAlterConfigs)."""
        return await of_each(
            {
                (kind, name): self._topics.alter_configs(
                    kind,
                    name,
                    changes={key: value for key, value in wanted.items() if value is not None},
                    removals=[key for key, value in wanted.items() if value is None],
                )
                for (kind, name), wanted in changes.items()
            }
        )

    async def replace_configs(
        self, resource: ConfigResource, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set exactly these settings of a resource (AlterConfigs, Kafka's older form)."""
        kind, name = resource
        await self._retry(
            lambda: cluster_calls.replace_configs(
                self._cluster.state, kind, name, configs, validate_only=validate_only
            )
        )

    async def list_config_resources(self, kinds: Sequence[ResourceType] = ()) -> list[ConfigResource]:
        """Resources that have settings: of these kinds, or of all."""
        return await self._retry(lambda: cluster_calls.list_config_resources(kinds))

    # --- cluster ---

    async def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        return await self._retry(lambda: cluster_calls.describe_cluster(include_fenced=include_fenced))

    async def describe_features(self) -> Mapping[str, int]:
        """Level of each finalized feature, such as transaction.version."""
        return dict((await self._cluster.any_channel()).finalized_features)

    async def describe_log_dirs(self, brokers: Sequence[int] | None = None) -> dict[int, dict[str, LogDir]]:
        return await self._retry(lambda: cluster_calls.describe_log_dirs(self._cluster.state, brokers))

    async def alter_replica_log_dirs(
        self, broker_id: int, moves: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, None]:
        """Move replicas of a broker to other log directories."""

        def attempt() -> Steps[dict[TopicPartition, KafkaError | None]]:
            yield from self._cluster.state.refresh(())
            return (yield from cluster_calls.alter_replica_log_dirs(broker_id, moves))

        found = await self._retry(attempt)
        errors = {at: error for at, error in found.items() if error is not None}
        return settle({at: None for at in found if at not in errors}, errors)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, None]:
        """Elect the preferred leader of these partitions, or of all. A partition that has it is done too."""
        kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        found = await elect_leaders(self._cluster, kind, None if partitions is None else list(partitions))
        errors = {at: error_for(code, str(at)) for at, code in found.items() if not is_elected(code)}
        return settle({at: None for at in found if at not in errors}, errors)

    async def alter_partition_reassignments(
        self, plan: Mapping[TopicPartition, Sequence[int] | None]
    ) -> None:
        """Move partitions to these replicas; None cancels a move in progress. All or none."""
        await self._moves.alter(plan)

    async def list_partition_reassignments(self) -> dict[TopicPartition, Move]:
        return await self._moves.ongoing()

    # --- groups ---

    async def list_groups(self) -> list[GroupListing]:
        return await self._groups.list()

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        return await of_each({name: self._groups.describe(name) for name in group_ids})

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, None]:
        return await of_each({name: self._groups.delete(name) for name in group_ids})

    async def list_group_offsets(
        self, group_id: str, *, require_stable: bool = False
    ) -> dict[TopicPartition, int]:
        """Committed offsets of a group. `require_stable` waits for those that a transaction still commits."""
        return await self._groups.offsets(group_id, require_stable=require_stable)

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group that has no members."""
        await self._groups.commit(group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, None]:
        return await self._retry(
            lambda: group_calls.delete_offsets(self._cluster.state, group_id, partitions)
        )

    async def remove_group_members(
        self, group_id: str, instance_ids: Collection[str], reason: str = "removed by an administrator"
    ) -> dict[str, None]:
        """Remove static members of a classic group."""
        return await self._retry(
            lambda: group_calls.remove_members(self._cluster.state, group_id, instance_ids, reason)
        )

    # --- security ---

    async def describe_acls(self, filters: Sequence[AclFilter] = (AclFilter(),)) -> list[AclBinding]:
        return await self._acls.find(filters)

    async def create_acls(self, bindings: Sequence[AclBinding]) -> dict[AclBinding, None]:
        return await self._acls.create(bindings)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Delete the bindings that match; returns them."""
        return await self._acls.delete(filters)

    async def describe_user_scram_credentials(self) -> list[ScramUser]:
        return await self._users.list()

    async def upsert_user_scram_credential(
        self, user: str, password: str, mechanism: ScramMechanism, iterations: int = 8_192
    ) -> None:
        """Create or replace a credential. The password itself is not sent."""
        await self._users.put(user, mechanism, password, iterations)

    async def delete_user_scram_credentials(self, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
        await self._users.delete(user, mechanisms)

    async def create_delegation_token(
        self,
        *,
        owner: KafkaPrincipal | None = None,
        renewers: Sequence[KafkaPrincipal] = (),
        lifetime_ms: int = BY_THE_BROKER,
    ) -> Token:
        return await self._tokens.create(owner, renewers, lifetime_ms)

    async def describe_delegation_tokens(self, owners: Sequence[KafkaPrincipal] = ()) -> list[Token]:
        return await self._tokens.list(owners)

    async def renew_delegation_token(self, token_id: str, period_ms: int = BY_THE_BROKER) -> int:
        """Renew a token; returns its new expiry time."""
        return await self._tokens.renew(token_id, period_ms)

    async def expire_delegation_token(self, token_id: str, period_ms: int = BY_THE_BROKER) -> int:
        """Expire a token, at once or after a period; returns its new expiry time."""
        return await self._tokens.expire(token_id, period_ms)

    # --- quotas ---

    async def describe_client_quotas(self, entity: Entity) -> list[EntityQuotas]:
        """Quotas of every entity that has these names, such as `{"user": "alice"}`."""
        return await self._retry(lambda: describe_quotas(entity))

    async def alter_client_quotas(self, entity: Entity, quotas: Mapping[str, float | None]) -> None:
        """Change quotas of one entity; None removes one."""
        changes = {key: value for key, value in quotas.items() if value is not None}
        removals = [key for key, value in quotas.items() if value is None]
        await self._retry(lambda: alter_quotas(entity, changes, removals))

    # --- transactions ---

    async def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), longer_than_ms: int = -1
    ) -> list[TransactionListing]:
        return await self._transactions.list_all(
            states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        return await of_each({name: self._transactions.describe(name) for name in transactional_ids})

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[OpenTransaction]]:
        """Producers with an open transaction in each partition, oldest first."""
        return await of_each({at: self._transactions.open_in(at) for at in partitions})

    async def find_hanging_transactions(self, topics: Collection[str]) -> list[OpenTransaction]:
        """Transactions in these topics that no coordinator will end."""
        return await self._transactions.hanging(topics)

    async def abort_transaction(self, transaction: OpenTransaction) -> None:
        """Write the abort marker of a hanging transaction to its partition."""
        await self._transactions.abort(transaction)

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, None]:
        """Fence the producers of these ids, and abort their open transactions."""
        return await of_each({name: self._fence(name) for name in transactional_ids})

    async def _fence(self, transactional_id: str) -> None:
        await self._run(begin(self._cluster.state, transactional_id, FENCING_TIMEOUT_MS))
