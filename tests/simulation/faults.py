"""Faults and their times: a list that the seed draws, and that can be read, shortened and played again.

Each seed turns kinds of faults on and off (swarm testing: combinations that are rare are frequent alone), and
draws their frequency. A power failure loses records that were acknowledged and not synced, as in Apache
Kafka. So does the replacement of a replica with a bad sector. So these faults come when nothing else is
broken and their partitions have other replicas in sync. A repair may be late, such as that of a broker that
cannot stop while the store is away. So a machine with the only copy of a record keeps its power.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.cluster.znodes.layout import PartitionStateZnode, TopicZnode
from tests.simulation.embedded import EmbeddedView
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import CONTENT, COORDINATION, DIRECTORIES, OPERATIONS, Machine
from tests.simulation.network import Network
from tests.simulation.shape import Shape
from tests.simulation.shared import SharedView
from tests.simulation.store import HOST as STORE
from tests.simulation.store import Store

CALM_S = 12.0
"""Before and after a power cut: longer than it takes to leave the ISR and to come back."""
ALONE = ("power cut", "corrupted sector", "missing disk")


class Fault(NamedTuple):
    at_s: float
    kind: str
    machine: int
    lasts_s: float
    detail: int = 0

    def __str__(self) -> str:
        return f"{self.kind} of {self.machine} at {self.at_s} for {self.lasts_s} ({self.detail})"


class Surroundings(NamedTuple):
    """Targets of faults."""

    loop: SimulatedLoop
    network: Network
    store: Store | EmbeddedView | SharedView
    machines: Sequence[Machine]
    topics: Sequence[str] = ()
    """Those whose replicas may be damaged."""

    def machine(self, number: int) -> Machine:
        return self.machines[number - 1]

    def name(self, host: str) -> str:
        return "the store" if host == STORE else f"broker {host.rpartition('.')[2]}"

    def has_only_copy(self, number: int) -> bool:
        """Whether a partition with several replicas has no other one in sync."""
        nodes = self.store.tree.nodes
        topics = [path for path in nodes if path.startswith(f"{TopicZnode.PARENT}/") and path.count("/") == 3]
        for path in topics:
            name = path.rpartition("/")[2]
            for partition, given in TopicZnode.decode(name, nodes[path].data).assignment.items():
                node = nodes.get(PartitionStateZnode.path(name, partition))
                isr = () if node is None else PartitionStateZnode.decode(node.data, 0).isr
                if len(given.replicas) > 1 and isr == (number,):
                    return True
        return False

    def others(self, number: int) -> list[str]:
        return [each.host for each in self.machines if each.number != number]


def _kill(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.kill()
    around.loop.later(fault.lasts_s, machine.start)


def _power(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    if not around.has_only_copy(fault.machine):
        machine.cut_power()
        around.loop.later(fault.lasts_s, machine.start)


def _stop(around: Surroundings, fault: Fault) -> None:
    around.machine(fault.machine).stop()


def _pause(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.pause()
    around.loop.later(fault.lasts_s, machine.resume)


def _cut(around: Surroundings, fault: Fault) -> None:
    """From one machine to another, or to the store; both ways unless the detail is odd."""
    there = _there(around, fault)
    _cut_off(around, fault, [there], one_way=fault.detail % 2 == 1)


def _there(around: Surroundings, fault: Fault) -> str:
    """Another broker, or the store."""
    hosts = (*around.others(fault.machine), STORE)
    return hosts[fault.detail // 2 % len(hosts)]


def _isolate(around: Surroundings, fault: Fault) -> None:
    """From the other brokers, and from the store too if the detail says so; clients still come through."""
    there = [*around.others(fault.machine), *([STORE] if fault.detail % 2 else [])]
    _cut_off(around, fault, there, one_way=False)


def _cut_off(around: Surroundings, fault: Fault, there: Sequence[str], *, one_way: bool) -> None:
    here = around.machine(fault.machine).host
    ways = [(here, host) for host in there] + ([] if one_way else [(host, here) for host in there])
    how = " (it hears, but is not heard)" if one_way else ""
    names = ", ".join(map(around.name, there))
    around.network.trace.tell(f"broker {fault.machine} is cut off from {names}{how}")
    for way in ways:
        around.network.cut(*way)

    def heal() -> None:
        around.network.trace.tell(f"broker {fault.machine} is heard again by {names}")
        for way in ways:
            around.network.heal(*way)

    around.loop.later(fault.lasts_s, heal)


def _reset(around: Surroundings, fault: Fault) -> None:
    share = 0.1 + fault.detail % 9 / 10
    around.network.trace.tell(f"connections break, each with a chance of {share:.1f}")
    around.network.reset_some(share)


def _slow_network(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    added_s = (0.05, 0.3, 1.5)[fault.detail % 3]
    around.network.trace.tell(f"the network of {machine} is slow: up to {added_s} s more")
    around.network.slow[machine.host] = added_s
    around.loop.later(fault.lasts_s, around.network.slow.pop, machine.host, None)


def _slow_link(around: Surroundings, fault: Fault) -> None:
    """One way between two machines."""
    here, there = around.machine(fault.machine).host, _there(around, fault)
    _slow_way(around, fault, here, there, (0.05, 0.3, 1.5)[fault.detail % 3])


def _late_watches(around: Surroundings, fault: Fault) -> None:
    """Answers and events of the store come late, in their order, as from a server that lags behind."""
    _slow_way(around, fault, STORE, around.machine(fault.machine).host, (0.3, 1.0, 2.5)[fault.detail % 3])


def _slow_way(around: Surroundings, fault: Fault, source: str, target: str, added_s: float) -> None:
    names = f"from {around.name(source)} to {around.name(target)}"
    around.network.trace.tell(f"the way {names} is slow: up to {added_s} s more")
    around.network.slow_links[source, target] = added_s

    def mend() -> None:
        around.network.trace.tell(f"the way {names} is as fast as before")
        around.network.slow_links.pop((source, target), None)

    around.loop.later(fault.lasts_s, mend)


def _slow_disk(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    usual_s = machine.sync_s
    machine.sync_s = (0.2, 1.0, 4.0)[fault.detail % 3]
    around.network.trace.tell(f"the disk of {machine} is slow: up to {machine.sync_s} s")

    def mend() -> None:
        machine.sync_s = usual_s

    around.loop.later(fault.lasts_s, mend)


def _disk(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.fail_disk((errno.EIO, errno.ENOSPC)[fault.detail % 2])
    around.loop.later(fault.lasts_s, machine.mend_disk)


def _disk_in_part(around: Surroundings, fault: Fault) -> None:
    """Some operations fail, on one of the log directories or on both."""
    machine = around.machine(fault.machine)
    both, one, other = DIRECTORIES, DIRECTORIES[:1], DIRECTORIES[1:]
    store = (COORDINATION,) if isinstance(around.store, EmbeddedView) else both
    places = (store, one, other, store, other, both)[fault.detail // 8 % 6]
    operations = OPERATIONS[fault.detail % len(OPERATIONS)]
    code = errno.ENOSPC if operations is CONTENT and fault.detail & 4 else errno.EIO
    machine.fail_in_part(code, operations, places)
    around.loop.later(fault.lasts_s, machine.mend_disk)


def _memory(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.run_out_of_memory()
    around.loop.later(fault.lasts_s, machine.find_memory)


def _threads(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.run_out_of_threads()
    around.loop.later(fault.lasts_s, machine.find_threads)


def _derived(around: Surroundings, fault: Fault) -> None:
    around.machine(fault.machine).damage_derived(fault.detail)


def _checkpoint(around: Surroundings, fault: Fault) -> None:
    around.machine(fault.machine).damage_checkpoint(fault.detail)


def _unmounted(around: Surroundings, fault: Fault) -> None:
    """The second log directory, which does not hold the embedded store."""
    machine = around.machine(fault.machine)
    machine.unmount(DIRECTORIES[1])
    around.loop.later(fault.lasts_s, machine.mount_again)


def _descriptors(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.run_out_of_descriptors()
    around.loop.later(fault.lasts_s, machine.mend_disk)


def _corrupt(around: Surroundings, fault: Fault) -> None:
    """No reader and no other replica may get the damaged record. Then the replica is replaced."""
    machine = around.machine(fault.machine)
    if around.has_only_copy(fault.machine):
        return
    place = machine.corrupt(around.topics, fault.detail)
    if place is not None:
        around.loop.later(fault.lasts_s, machine.replace_replica, place)


def _election_in_store(around: Surroundings, fault: Fault) -> None:
    outage_s = 0.2 + fault.detail % 10 / 5
    around.network.trace.tell(f"the store elects a leader: nobody is served for {outage_s:.1f} s")
    around.store.elect(outage_s)


def _store(around: Surroundings, fault: Fault) -> None:
    around.network.trace.tell(f"the store is away for {fault.lasts_s} s")
    around.store.restart(fault.lasts_s)


def _expire(around: Surroundings, fault: Fault) -> None:
    sessions = around.store.session_ids
    if sessions:
        around.store.expire(sessions[fault.detail % len(sessions)])


def _clock(around: Surroundings, fault: Fault) -> None:
    machine = around.machine(fault.machine)
    machine.clock.skew_ms += (fault.detail % 7 - 3) * 1_700
    around.network.trace.tell(f"the clock of {machine} is {machine.clock.skew_ms} ms off")


KINDS: dict[str, Callable[[Surroundings, Fault], None]] = {
    "kill": _kill,
    "power cut": _power,
    "stop": _stop,
    "pause": _pause,
    "cut": _cut,
    "isolation": _isolate,
    "reset": _reset,
    "slow network": _slow_network,
    "slow disk": _slow_disk,
    "disk failure": _disk,
    "no descriptors": _descriptors,
    "corrupted sector": _corrupt,
    "slow link": _slow_link,
    "late watches": _late_watches,
    "store election": _election_in_store,
    "store away": _store,
    "session end": _expire,
    "clock": _clock,
    "disk failure in part": _disk_in_part,
    "no memory": _memory,
    "no threads": _threads,
    "damaged index": _derived,
    "missing disk": _unmounted,
}
LATER_KINDS: dict[str, Callable[[Surroundings, Fault], None]] = {"damaged checkpoint": _checkpoint}
"""Drawn apart from the others, so that a seed without them keeps its world."""
LATER_SHARE = 0.3
EVERY_KIND = {**KINDS, **LATER_KINDS}
OF_CLUSTERS = (
    "cut",
    "isolation",
    "slow link",
    "late watches",
    "store election",
    "store away",
    "session end",
    "corrupted sector",
)
"""Kinds that mean nothing to one broker on its own store, or leave it without its only copy."""


def draw(seed: int, begins_s: float, ends_s: float, shape: Shape) -> list[Fault]:
    chance = random.Random(f"{seed} faults")
    every = [kind for kind in KINDS if not shape.is_embedded or kind not in OF_CLUSTERS]
    kinds = [kind for kind in every if chance.random() < 0.4] or [chance.choice(every)]
    gap_s = chance.choice((2.0, 4.0, 8.0))
    lasts_s = chance.choice((2.0, 8.0, 20.0))
    faults: list[Fault] = []
    at_s, quiet_s = begins_s, begins_s
    while True:
        at_s = round(at_s + chance.uniform(0, 2 * gap_s), 3)
        kind = chance.choice(kinds)
        fault = Fault(
            at_s,
            kind,
            chance.randint(1, shape.brokers),
            round(chance.uniform(0.2, lasts_s), 3),
            chance.randrange(64),
        )
        if kind in ALONE:
            fault = fault._replace(at_s=max(at_s, round(quiet_s + CALM_S, 3)))
            at_s = fault.at_s + fault.lasts_s + CALM_S
        if fault.at_s + fault.lasts_s >= ends_s:
            return _with_later(seed, begins_s, ends_s, shape, faults)
        quiet_s = max(quiet_s, fault.at_s + fault.lasts_s)
        faults.append(fault)


def _with_later(seed: int, begins_s: float, ends_s: float, shape: Shape, faults: list[Fault]) -> list[Fault]:
    """One or two of the later kinds, in some of the seeds, while no power is cut."""
    chance = random.Random(f"{seed} later faults")
    if not shape.settings or chance.random() >= LATER_SHARE:
        return faults
    alone = [fault for fault in faults if fault.kind in ALONE]
    found = list(faults)
    for kind in chance.choices(list(LATER_KINDS), k=chance.randint(1, 2)):
        at_s, machine = round(chance.uniform(begins_s, ends_s), 3), chance.randint(1, shape.brokers)
        fault = Fault(at_s, kind, machine, 1.0, chance.randrange(1 << 16))
        if not any(-CALM_S <= at_s - each.at_s <= each.lasts_s + CALM_S for each in alone):
            found.append(fault)
    return sorted(found, key=lambda fault: fault.at_s)
