"""What decides: which topics exist, who leads their partitions, which settings hold.

The controller is the one broker that decides who leads what. It reads the coordination store, keeps
what it read in a `ControllerContext`, and answers every change (a broker came or went, a topic was
created, an administrator asked) with state changes of partitions and replicas: first written to the
store, conditional on versions and on the controller epoch, then sent to the brokers. Everything happens
in one event at a time, so none of it locks.

Nothing here does I/O or knows the loop: the store, time and tasks are handed in. Pure: `leader_selection`,
`partition_states`, `replica_states`, `context`, `request_batch`, `broker_channels`, `topic_rules`. With the
store (`store`): `partition_machine`, `replica_machine`, `leader_elections`, `topic_deletion`, `reassignment`,
`broker_changes`, `topic_changes`. `term` puts these together for as long as a broker is the controller.
Around it: `controller`, of which every broker has one, `controller_election`, `events` (the queue) and
`watching` (the store's watches). Administrators' requests are written down by `administration`; what only the
disk knows, where the store is a broker's own, by `adoption`. `ProducerIds` writes a decision to the store
first and only then makes it true here: a crash in between is repaired from the store at the next start.
"""
