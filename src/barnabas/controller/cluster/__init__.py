"""The controller of a cluster: the one broker that decides who leads what.

It reads the coordination store, keeps what it read in a `ControllerContext`, and answers every
change (a broker came or went, a topic was created, an administrator asked) with state changes of
partitions and replicas: first written to the store, conditional on versions and on the controller
epoch, then sent to the brokers. Everything happens in one event at a time, so none of it locks.

Pure: `leader_selection`, `partition_states`, `replica_states`, `context`, `request_batch`.
With the store: `partition_machine`, `replica_machine`, `topic_deletion`, `reassignment`,
`broker_changes`, `topic_changes`. Around them: `events` (the queue), `broker_channels` (the
senders), `watching` (the store's watches), and `controller`, which puts all this together.
"""
