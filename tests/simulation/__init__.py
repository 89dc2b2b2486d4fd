"""Whole brokers in a simulated world: one process, one thread, virtual time, one seed.

`loop` is time, `network` what is between machines, `store` a ZooKeeper, `machine` a broker with its disk,
`shape` what kind of cluster a seed has, `clients` and `cast` who uses it, `faults` what breaks; `watch` is
what must hold at every moment, `judge` and `memory` what must hold at last, `story` how a failure is told,
`run` all of it from one seed.
docs/SIMULATION.md says how to use it and what it found.
"""
