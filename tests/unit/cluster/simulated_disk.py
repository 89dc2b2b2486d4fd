"""The disk that loses power, with a cut after so many operations, and a count of its syncs."""

from __future__ import annotations

from tests.support.power_cut_files import PowerCutFiles

STORE = "/disk/store"
"""The directory of the embedded store."""


class PowerCut(Exception):
    """The machine is off; nothing more is done."""


class SimulatedDisk(PowerCutFiles):
    """Survives power cuts. Fails after `steps_until_cut` more operations, if that is set."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.make_directory("/disk")
        self.sync_directory("")
        self.steps_until_cut: int | None = None
        self.syncs = 0
        self.before = self._step

    def _step(self, operation: str, path: str) -> None:
        if self.steps_until_cut is not None:
            if self.steps_until_cut == 0:
                raise PowerCut
            self.steps_until_cut -= 1
        self.syncs += operation.startswith("sync")

    def restart(self) -> None:
        """Power is back; what was not synced is there in part, or not."""
        self.steps_until_cut = None
        self.cut_power()
