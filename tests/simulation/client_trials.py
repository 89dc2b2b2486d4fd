"""Trials of clients that are not like the others: throttled, in another rack, very many partitions, users.

Like `trials`, each comes last, when all is mended, and may break things by itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from barnabas.client.admin.acls import Acls
from barnabas.client.admin.client_quotas import alter_quotas
from barnabas.client.admin.reassignment import Reassignments
from barnabas.client.admin.scram_users import ScramUsers
from barnabas.client.aio.channel import Channel
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable, Steps, raise_for
from barnabas.client.core.transaction_steps import idempotent_producer
from barnabas.core.errors import KafkaError, NotLeaderOrFollower, error_for
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records.batch import iterate_whole_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.record import iterate_records
from barnabas.security.acl.bindings import AccessRule, AclBinding, AclFilter, ResourcePattern
from barnabas.security.acl.vocabulary import Operation, PatternType, Permission, ResourceType
from barnabas.security.credentials.scram_credential import SALT_BYTES, ScramMechanism
from tests.chaos.history import ALL_REPLICAS, History, Value
from tests.simulation.cast import Part, Stage, Topic
from tests.simulation.clients import REQUEST_TIMEOUT_MS, Batches, World
from tests.simulation.trials import (
    NOT_IN_SYNC_S,
    SERVED_WITHIN_S,
    assignment_of,
    leader_of,
    state_of,
    until,
)
from tests.support.plain_consumer import MAX_BYTES

FETCH_WAIT_MS = 200
OVERHEAD_BYTES = 200
"""A request has more than its value."""
PATIENT_MS = 600_000.0
"""The trial says itself when an answer is late."""
REBALANCED_WITHIN_S = 45.0
"""Longer than two of the machines' `leader.imbalance.check.interval.seconds`."""
BURST_S = 10.0
"""Amount in all windows of a quota together."""


async def fetch_from(
    cluster: ClusterClient, broker: int, name: str, offset: int, *, rack: str = "", patience_ms: float = 5_000
) -> tuple[FetchResponse, PartitionData | None]:
    """One fetch of partition 0 from this broker, whether it leads or not."""
    topic = await cluster.topic(name)
    row = FetchPartition(
        partition=0,
        current_leader_epoch=topic.partitions[0].leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=MAX_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=MAX_BYTES,
        rack_id=rack,
        topics=[FetchTopic(topic=name, topic_id=topic.topic_id, partitions=[row])],
    )
    channel = await cluster.channel_to(broker)
    answer = await channel.send(request, FetchResponse, timeout_ms=patience_ms)
    if answer.error_code:
        raise error_for(answer.error_code, "")
    rows = [each for group in answer.responses for each in group.partitions]
    if rows and rows[0].error_code:
        raise error_for(rows[0].error_code, "")
    return answer, rows[0] if rows else None


async def channel_of(cluster: ClusterClient, broker: int) -> Channel:
    """To this broker, once the cluster knows where it is."""
    while True:
        with suppress(KafkaError, ClusterUnreachable):
            await cluster.refresh([])
            return await cluster.channel_to(broker)
        await asyncio.sleep(0.5)


def offsets_in(row: PartitionData, offset: int) -> list[int]:
    """Of the records from `offset` on."""
    found = (
        iterate_whole_batches(row.records) if isinstance(row.records, bytes | bytearray | memoryview) else ()
    )
    return [
        record.offset
        for batch in found
        if not batch.is_control
        for record in iterate_records(batch)
        if record.offset >= offset
    ]


class Nearby(Part):
    """A reader in the rack of a follower. The follower has records that are not committed, since another
    replica stands still: the reader gets none of them before they are, and all of them soon after."""

    TOPIC = "nearby"
    RECORDS = 6

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []
        self._position = 0
        self._was_sent_away = False

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, replicas=3, configs={"min.insync.replicas": "1"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        await self._preferred_leader(stage)
        leader, state = leader_of(stage, self.TOPIC), state_of(stage, self.TOPIC)
        assert state is not None
        rack = f"rack-{1 - leader.number % 2}"
        followers = [number for number in state.isr if number != leader.number]
        near = [number for number in followers if f"rack-{number % 2}" == rack]
        if not near or len(followers) < 2:
            return
        await self._write(world, cluster)
        await self._read(stage, cluster, rack, self.RECORDS)
        (other,) = (stage.machines[number - 1] for number in followers if number != near[0])
        other.pause()
        await self._write(world, cluster)
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                await self._read(stage, cluster, rack, 2 * self.RECORDS)
        other.resume()
        await self._within(stage, cluster, rack, 2 * self.RECORDS)
        for host in (machine.host for machine in stage.machines if machine.number != near[0]):
            stage.network.cut(stage.machines[near[0] - 1].host, host)
        await asyncio.sleep(2 * NOT_IN_SYNC_S)
        await self._write(world, cluster)
        await self._within(stage, cluster, rack, 3 * self.RECORDS)
        stage.network.heal_all()
        await stage.in_sync()

    async def _preferred_leader(self, stage: Stage) -> None:
        """The reader's rack depends on the leader, so leadership must not return to the preferred leader
        while the trial runs."""
        preferred = assignment_of(stage, self.TOPIC)[0]
        with suppress(TimeoutError):
            async with asyncio.timeout(REBALANCED_WITHIN_S):
                await until(lambda: leader_of(stage, self.TOPIC).number == preferred)

    async def _write(self, world: World, cluster: ClusterClient) -> None:
        batches = Batches(cluster, self.TOPIC, 1, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        for number in range(self.RECORDS):
            await batches.write(Value(self.TOPIC, number), 0)

    async def _within(self, stage: Stage, cluster: ClusterClient, rack: str, end: int) -> None:
        try:
            async with asyncio.timeout(SERVED_WITHIN_S):
                await self._read(stage, cluster, rack, end)
        except TimeoutError:
            self._complaints.append(
                f"not served: a reader in {rack} of {self.TOPIC}-0 is at {self._position}, not at {end}"
            )

    async def _read(self, stage: Stage, cluster: ClusterClient, rack: str, end: int) -> None:
        """As Apache Kafka's consumer: where the leader says, and again at the leader when nothing comes."""
        while self._position < end:
            leader = leader_of(stage, self.TOPIC)
            with suppress(KafkaError, ClusterUnreachable):
                _, row = await fetch_from(cluster, leader.number, self.TOPIC, self._position, rack=rack)
                where = leader.number
                if row is not None and row.preferred_read_replica >= 0:
                    where = row.preferred_read_replica
                    self._was_sent_away = True
                    _, row = await fetch_from(cluster, where, self.TOPIC, self._position, rack=rack)
                self._take(stage, where, row)
                continue
            cluster.state.forget_topic(self.TOPIC)
            await asyncio.sleep(0.2)

    def _take(self, stage: Stage, where: int, row: PartitionData | None) -> None:
        if row is None:
            return
        partition = leader_of(stage, self.TOPIC).partitions.get(TopicPartition(self.TOPIC, 0))
        for offset in offsets_in(row, self._position):
            if partition is not None and offset >= partition.log.high_watermark:
                self._complaints.append(
                    f"read too early: broker {where} gave {self.TOPIC}-0@{offset} to a reader, and what is"
                    f" below {partition.log.high_watermark} is committed"
                )
            self._position = offset + 1

    def complaints(self) -> list[str]:
        found = self._complaints[:5]
        if not self._was_sent_away and self._position:
            found.append(f"not nearby: no reader of {self.TOPIC}-0 was sent to the replica in its rack")
        return found


class Crowd(Part):
    """Many partitions of one leader and one follower, which fetches little at once, over a slow way and
    without a fetch session. All but one are written to without a pause: the quiet one is replicated
    nevertheless."""

    TOPIC = "crowd"
    PARTITIONS = 8
    VALUE_BYTES = 350
    SLOW_S = 0.1
    WRITES = 3

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []
        self._is_over = False

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(self.PARTITIONS, replicas=2, configs={"min.insync.replicas": "2"})}

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        cluster = await world.open(self.TOPIC)
        pair = self.chance.sample(range(1, stage.brokers + 1), 2)
        places = [TopicPartition(self.TOPIC, number) for number in range(self.PARTITIONS)]
        await Reassignments(cluster).alter(dict.fromkeys(places, pair))
        await until(lambda: all(self._is_with(stage, number, pair) for number in range(self.PARTITIONS)))
        leaders = [leader_of(stage, self.TOPIC, number).number for number in range(self.PARTITIONS)]
        (leader, _), *_ = Counter(leaders).most_common()
        together = [number for number, found in enumerate(leaders) if found == leader]
        quiet = self.chance.choice(together)
        here, there = (stage.machines[number - 1].host for number in pair)
        stage.network.slow_links[here, there] = stage.network.slow_links[there, here] = self.SLOW_S
        busy = [
            asyncio.create_task(self._flood(world, cluster, number)) for number in together if number != quiet
        ]
        await asyncio.sleep(NOT_IN_SYNC_S)
        writing = asyncio.create_task(self._write(world, cluster, quiet))
        done, _ = await asyncio.wait((writing,), timeout=SERVED_WITHIN_S / 2)
        if not done:
            writing.cancel()
            self._complaints.append(
                f"not served: {self.TOPIC}-{quiet} is not replicated within {SERVED_WITHIN_S / 2:.0f} s,"
                " as other partitions are busy"
            )
        self._is_over = True
        stage.network.slow_links.clear()
        await asyncio.gather(*busy)
        await stage.in_sync()

    def _is_with(self, stage: Stage, number: int, pair: list[int]) -> bool:
        state = state_of(stage, self.TOPIC, number)
        return state is not None and set(state.isr) == set(pair) and state.leader in pair

    async def _flood(self, world: World, cluster: ClusterClient, partition: int) -> None:
        batches = Batches(cluster, self.TOPIC, 1, world.clock.now_ms)
        batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
        while not self._is_over:
            with suppress(KafkaError, ClusterUnreachable):
                await batches.write_rows([(None, bytes(self.VALUE_BYTES))], partition)
            await asyncio.sleep(self.SLOW_S / 2)

    async def _write(self, world: World, cluster: ClusterClient, partition: int) -> None:
        for _ in range(self.WRITES):
            batches = Batches(cluster, self.TOPIC, ALL_REPLICAS, world.clock.now_ms)
            batches.identify(*await cluster.run(idempotent_producer(cluster.state)))
            await batches.write_rows([(None, bytes(self.VALUE_BYTES))], partition)
            await asyncio.sleep(1.0)

    def complaints(self) -> list[str]:
        return self._complaints


class Rate(NamedTuple):
    """Quota of a client, in bytes a second; 0 for no bound."""

    client_id: str
    produce: float
    consume: float


class Throttled(Part):
    """Clients with quotas beside one without. A throttled client gets all it asks for, and is answered when
    the broker said; a client within its quota, or without one, is never throttled."""

    TOPIC = "throttled"
    SLOW = Rate("throttled-slow", 700.0, 2_500.0)
    WIDE = Rate("throttled-wide", 1e6, 1e6)
    FREE = Rate("throttled-free", 0.0, 0.0)
    RECORDS = 24
    VALUE_BYTES = 400
    LARGE_BYTES = 40_000
    """More than all windows of the slow client hold."""
    GRACE_S = 3.0

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._complaints: list[str] = []
        self._throttles: dict[str, int] = {}
        self._written = 0

    def topics(self) -> dict[str, Topic]:
        return {self.TOPIC: Topic(1, configs={"compression.type": "producer", "segment.bytes": "200000"})}

    async def look(self, stage: Stage) -> None:
        admin = await stage.world(self.TOPIC, History()).open(self.TOPIC)
        for rate in (self.SLOW, self.WIDE):
            changes = {"producer_byte_rate": rate.produce, "consumer_byte_rate": rate.consume}
            entity = {"client-id": rate.client_id}
            await admin.run_with_retries(lambda e=entity, c=changes: alter_quotas(e, c, ()))  # type: ignore[misc]
        await self._await_quotas(stage)
        rates = (self.SLOW, self.WIDE, self.FREE)
        await asyncio.gather(*(self._write(stage, rate) for rate in rates))
        await asyncio.gather(*(self._read(stage, rate) for rate in rates))
        if not self._throttles.get(self.SLOW.client_id):
            self._complaints.append(f"not throttled: {self.SLOW.client_id} was never above its quota")

    async def _await_quotas(self, stage: Stage) -> None:
        """Every broker has read them."""
        cluster = await stage.world(self.TOPIC, History()).open(self.TOPIC)
        for machine in stage.machines:
            for _ in range(int(SERVED_WITHIN_S)):
                channel = await channel_of(cluster, machine.number)
                answer = await channel.send(
                    DescribeClientQuotasRequest(components=[]), DescribeClientQuotasResponse
                )
                if len(answer.entries or ()) >= 2:
                    break
                await asyncio.sleep(1.0)
            else:
                self._complaints.append(f"lost quota: {machine} does not know what was acknowledged")

    async def _write(self, stage: Stage, rate: Rate) -> None:
        """One batch at a time; the last is large."""
        cluster = await stage.world(rate.client_id, History()).open(rate.client_id)
        allowed_s = waited_s = 0.0
        sent_bytes = 0
        for number in range(self.RECORDS):
            size = self.LARGE_BYTES if number == self.RECORDS - 1 else self.VALUE_BYTES
            builder = BatchBuilder()
            builder.append(None, bytes(size), (), stage.machines[0].clock.now_ms())
            data = [PartitionProduceData(index=0, records=bytearray(builder.build()))]
            topic = await cluster.topic(self.TOPIC)
            request = ProduceRequest(
                acks=ALL_REPLICAS,
                timeout_ms=REQUEST_TIMEOUT_MS - 500,
                topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
            )
            channel = await cluster.channel_to(topic.partitions[0].leader_id)
            sending = channel.send(request, ProduceResponse, timeout_ms=PATIENT_MS)
            answer = await self._in_time(rate, "write", sending, allowed_s)
            if answer is None:
                return
            self._note(rate, answer.throttle_time_ms)
            allowed_s = answer.throttle_time_ms / 1_000
            waited_s, sent_bytes = waited_s + allowed_s, sent_bytes + size + OVERHEAD_BYTES
            error_code = answer.responses[0].partition_responses[0].error_code
            if error_code == NotLeaderOrFollower.code:  # another leader was elected meanwhile
                cluster.state.forget_topic(self.TOPIC)
                continue
            if error_code:
                raise error_for(error_code, f"a write of {rate.client_id}")
            self._written += 1
        if rate.produce and waited_s > sent_bytes / rate.produce + BURST_S:
            self._complaints.append(
                f"throttled wrongly: {rate.client_id} waits {waited_s:.1f} s for {sent_bytes} bytes"
            )

    async def _read(self, stage: Stage, rate: Rate) -> None:
        cluster = await stage.world(rate.client_id, History()).open(rate.client_id)
        deadline_s = stage.machines[0].clock.monotonic_ms() / 1_000 + 2 * SERVED_WITHIN_S
        position, allowed_s = 0, 0.0
        while position < self._written:
            leader = leader_of(stage, self.TOPIC).number
            fetching = fetch_from(cluster, leader, self.TOPIC, position, patience_ms=PATIENT_MS)
            try:
                found = await self._in_time(rate, "fetch", fetching, allowed_s)
            except NotLeaderOrFollower:
                cluster.state.forget_topic(self.TOPIC)
                await asyncio.sleep(0.2)
                continue
            if found is None:
                return
            answer, row = found
            self._note(rate, answer.throttle_time_ms)
            allowed_s = answer.throttle_time_ms / 1_000
            if row is not None:
                position = max([position, *(offset + 1 for offset in offsets_in(row, position))])
            if stage.machines[0].clock.monotonic_ms() / 1_000 > deadline_s:
                self._complaints.append(
                    f"not served: {rate.client_id} is at {position} of {self._written} after"
                    f" {2 * SERVED_WITHIN_S:.0f} s"
                )
                return

    async def _in_time(self, rate: Rate, what: str, work: object, allowed_s: float):  # type: ignore[no-untyped-def]
        """The answer, which comes when the broker has said, or None."""
        try:
            async with asyncio.timeout(allowed_s + self.GRACE_S):
                return await work  # type: ignore[misc]
        except TimeoutError:
            self._complaints.append(
                f"not served: a {what} of {rate.client_id} is not answered {self.GRACE_S:.0f} s after its"
                f" throttle time of {allowed_s:.1f} s"
            )
            return None

    def _note(self, rate: Rate, throttle_ms: int) -> None:
        if throttle_ms:
            self._throttles[rate.client_id] = self._throttles.get(rate.client_id, 0) + throttle_ms
            if rate is not self.SLOW:
                self._complaints.append(f"throttled wrongly: {rate.client_id} for {throttle_ms} ms")

    def complaints(self) -> list[str]:
        return self._complaints[:5]


class Users(Part):
    """An administrator adds and removes users, access rules and quotas. Every broker knows an acknowledged
    change soon, and after a restart."""

    TOPIC = "users"
    NAMES = 5
    CHANGES = 16
    ITERATIONS = 4_096

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._users: set[str] = set()
        self._rules: set[str] = set()
        self._quotas: dict[str, float] = {}
        self._complaints: list[str] = []

    async def look(self, stage: Stage) -> None:
        world = stage.world(self.TOPIC, History())
        for after in ("they were acknowledged", "a restart", "a change beside a restart"):
            cluster = await world.open(self.TOPIC)
            if after == "a restart":
                for machine in stage.machines:
                    machine.kill()
                for machine in stage.machines:
                    machine.start()
                await stage.in_sync()
            elif after == "a change beside a restart":
                if stage.brokers == 1:
                    return
                away = self.chance.choice(stage.machines)
                away.kill()
                await asyncio.sleep(NOT_IN_SYNC_S)
                await self._change_all(cluster)
                away.start()
                await stage.in_sync()
            else:
                await self._change_all(cluster)
            await self._compare(stage, await world.open(self.TOPIC), after)
            if self._complaints:
                return

    async def _change_all(self, cluster: ClusterClient) -> None:
        for _ in range(self.CHANGES):
            change: Callable[[ClusterClient, str], object] = self.chance.choice(
                (self._change_user, self._change_rule, self._change_quota)
            )
            await change(cluster, f"user-{self.chance.randrange(self.NAMES)}")  # type: ignore[misc]

    async def _change_user(self, cluster: ClusterClient, name: str) -> None:
        if name in self._users:
            await ScramUsers(cluster).delete(name, [ScramMechanism.SHA_256])
            self._users.discard(name)
            return
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=ScramMechanism.SHA_256.number,
            iterations=self.ITERATIONS,
            salt=self.chance.randbytes(SALT_BYTES),
            salted_password=self.chance.randbytes(ScramMechanism.SHA_256.size),
        )
        request = AlterUserScramCredentialsRequest(upsertions=[upsertion])

        def attempt() -> Steps[None]:
            answer = yield from cluster.state.ask_controller(request, AlterUserScramCredentialsResponse)
            raise_for(answer.results[0].error_code, answer.results[0].error_message, name)

        await cluster.run_with_retries(attempt)
        self._users.add(name)

    async def _change_rule(self, cluster: ClusterClient, name: str) -> None:
        pattern = ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL)
        binding = AclBinding(pattern, AccessRule(f"User:{name}", "*", Operation.READ, Permission.ALLOW))
        if name in self._rules:
            await Acls(cluster).delete([AclFilter(ResourceType.TOPIC, name, PatternType.LITERAL)])
            self._rules.discard(name)
        else:
            await Acls(cluster).create([binding])
            self._rules.add(name)

    async def _change_quota(self, cluster: ClusterClient, name: str) -> None:
        value = float(self.chance.randint(1_000, 9_999))
        changes = {"producer_byte_rate": value}
        await cluster.run_with_retries(lambda: alter_quotas({"client-id": name}, changes, ()))
        self._quotas[name] = value

    async def _compare(self, stage: Stage, cluster: ClusterClient, after: str) -> None:
        for machine in stage.machines:
            with suppress(TimeoutError):
                async with asyncio.timeout(SERVED_WITHIN_S / 2):
                    while await self._differences(cluster, machine.number):  # noqa: ASYNC110
                        await asyncio.sleep(1.0)
            self._complaints += [
                f"{each}, on {machine} after {after}"
                for each in await self._differences(cluster, machine.number)
            ]
            if self._complaints:
                return

    async def _differences(self, cluster: ClusterClient, broker: int) -> list[str]:
        channel = await channel_of(cluster, broker)
        users = await channel.send(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
        )
        rules = await channel.send(
            DescribeAclsRequest(
                resource_type_filter=ResourceType.ANY,
                resource_name_filter=None,
                pattern_type_filter=PatternType.ANY,
                principal_filter=None,
                host_filter=None,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            ),
            DescribeAclsResponse,
        )
        quotas = await channel.send(DescribeClientQuotasRequest(components=[]), DescribeClientQuotasResponse)
        known = {
            "users": {each.user for each in users.results},
            "rules": {each.resource_name for each in rules.resources},
            "quotas": {entry.entity[0].entity_name: entry.values[0].value for entry in quotas.entries or ()},
        }
        wanted = {"users": self._users, "rules": self._rules, "quotas": self._quotas}
        return [
            f"lost {kind}: {known[kind]} instead of {wanted[kind]}"
            for kind in known
            if known[kind] != wanted[kind]
        ]

    def complaints(self) -> list[str]:
        return self._complaints[:5]
