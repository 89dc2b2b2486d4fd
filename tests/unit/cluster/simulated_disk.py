"""A directory that loses power: writes since the last sync may be lost or torn, renames undone."""

from __future__ import annotations

import random

from barnabas.cluster.coordination import StoreLocked


class PowerCut(Exception):
    """The machine is off; nothing more is done."""


class Content:
    def __init__(self) -> None:
        self.durable = b""
        self.volatile = b""


class SimulatedDisk:
    """Survives power cuts. Fails after `steps_until_cut` more operations, if that is set."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.names: dict[str, Content] = {}
        self.durable_names: dict[str, Content] = {}
        self.steps = 0
        self.steps_until_cut: int | None = None
        self.locked = False
        self.syncs = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps_until_cut is not None:
            if self.steps_until_cut == 0:
                raise PowerCut
            self.steps_until_cut -= 1

    def restart(self) -> None:
        """Power is back; decide what the unsynced part came to."""
        self.steps_until_cut = None
        self.locked = False
        if self.random.random() < 0.5:
            self.names = dict(self.durable_names)
        for content in {id(c): c for c in self.names.values()}.values():
            content.volatile = content.durable = self._survives(content)
        self.durable_names = dict(self.names)

    def _survives(self, content: Content) -> bytes:
        durable, volatile = content.durable, content.volatile
        if not volatile.startswith(durable):  # a truncation: it happened, or it did not
            return self.random.choice([durable, volatile])
        tail = volatile[len(durable) :]
        kept = bytearray(tail[: self.random.randint(0, len(tail))])
        if kept and self.random.random() < 0.3:
            at = self.random.randrange(len(kept))
            kept[at:] = bytes(len(kept) - at)  # the length grew before the blocks arrived
        return durable + bytes(kept)


class SimulatedFile:
    def __init__(self, disk: SimulatedDisk, content: Content) -> None:
        self._disk = disk
        self._content = content

    def append(self, data: bytes) -> None:
        half = len(data) // 2
        self._content.volatile += data[:half]
        self._disk.step()
        self._content.volatile += data[half:]

    def truncate(self, length: int) -> None:
        self._disk.step()
        self._content.volatile = self._content.volatile[:length]

    def sync(self) -> None:
        self._disk.step()
        self._disk.syncs += 1
        self._content.durable = self._content.volatile

    def close(self) -> None:
        pass


class SimulatedDirectory:
    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def lock(self) -> None:
        if self._disk.locked:
            raise StoreLocked("simulated")
        self._disk.locked = True

    def read(self, name: str) -> bytes | None:
        content = self._disk.names.get(name)
        return None if content is None else content.volatile

    def open(self, name: str) -> SimulatedFile:
        self._disk.step()
        return SimulatedFile(self._disk, self._disk.names.setdefault(name, Content()))

    def rename(self, name: str, to: str) -> None:
        self._disk.step()
        self._disk.names[to] = self._disk.names.pop(name)

    def remove(self, name: str) -> None:
        self._disk.step()
        self._disk.names.pop(name, None)

    def sync(self) -> None:
        self._disk.step()
        self._disk.syncs += 1
        self._disk.durable_names = dict(self._disk.names)

    def close(self) -> None:
        self._disk.locked = False
