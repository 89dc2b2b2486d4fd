"""Whether coordinators know what their logs say.

When nothing else happens, coordinators are asked for every committed offset and every transactional id. Then
all brokers are killed and restarted, so that each coordinator knows only its log. They are asked again, for
the same groups and ids, because a broker that does not yet know its partitions lists none. Meanwhile time
passes, and an open transaction is aborted when it times out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.client.admin.groups import Groups
from barnabas.client.admin.transactions import Transactions
from barnabas.client.aio.cluster_client import ClusterClient

Memory = dict[str, object]


class Known(NamedTuple):
    groups: Sequence[str]
    transactional_ids: Sequence[str]


class Transaction(NamedTuple):
    state: str
    producer_id: int
    producer_epoch: int


async def known_to(cluster: ClusterClient) -> Known:
    return Known(
        sorted(each.group_id for each in await Groups(cluster).list()),
        sorted(each.transactional_id for each in await Transactions(cluster).list_all()),
    )


async def ask(cluster: ClusterClient, known: Known) -> Memory:
    groups, transactions = Groups(cluster), Transactions(cluster)
    memory: Memory = {}
    for group in known.groups:
        offsets = await groups.offsets(group)
        memory |= {f"group {group}, {place}": offset for place, offset in sorted(offsets.items())}
    for transactional_id in known.transactional_ids:
        found = await transactions.describe(transactional_id)
        memory[f"transactional id {transactional_id}"] = Transaction(
            found.state, found.producer_id, found.producer_epoch
        )
    return memory


def differences(before: Memory, after: Memory) -> Iterator[str]:
    for what in sorted(before.keys() | after.keys()):
        was, now = before.get(what), after.get(what)
        if was != now and not _was_ended_by_time(was, now):
            yield f"memory is not what the log says: {what} was {was}, and is {now} after a restart"


def _was_ended_by_time(was: object, now: object) -> bool:
    """Aborted, and its producer fenced."""
    return (
        isinstance(was, Transaction)
        and isinstance(now, Transaction)
        and was.state == "Ongoing"
        and now.state in ("PrepareAbort", "CompleteAbort")
        and was[1:] != now[1:]
    )
