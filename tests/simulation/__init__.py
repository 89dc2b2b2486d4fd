"""Whole brokers in a simulated world: one process, one thread, virtual time, one seed.

`loop` is time, `network` what is between machines, `store` a ZooKeeper, `machine` a broker with its disk,
`clients` who uses it, `faults` what breaks, `judge` what must never be, `run` all of it from one seed.
docs/SIMULATION.md says how to use it and what it found.
"""
