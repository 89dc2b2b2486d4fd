"""Whole brokers in a simulated world: one process, one thread, virtual time, one seed.

- `loop` is time, `network` the wires between machines, `store` a ZooKeeper, `machine` a broker with its disk.
- `shape` draws the cluster of a seed, `clients` and `cast` its clients, `faults` its faults.
- `watch` checks invariants at every moment, `judge` and `memory` check the end.
- `story` reports a failure, and `run` plays everything from one seed.

docs/SIMULATION.md says how to use it and lists its findings.
"""
