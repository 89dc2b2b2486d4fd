"""Controller: elects partition leaders and carries out topic and broker changes.

One broker of the cluster is the controller. It reads the coordination store and keeps the state in a
`ControllerContext`. It answers every change (a broker started or failed, a topic was created, an
administrator asked) with state changes of partitions and replicas. A state change is first written to the
store, conditional on versions and on the controller epoch, and then sent to the brokers. Events run one at a
time, so nothing locks.

Nothing here does I/O or knows the loop: the store, time and tasks are handed in.

- `state`: the context, the state tables, and the store with its watches and retries.
- `machines`: the partition and replica state machines, and leader selection (pure functions).
- `changes`: reactions to broker changes, topic changes, deletions, reassignments and elections.
- `channels`: request batches and one ordered queue per broker.
- `term`: one term of office, which holds all of the above.
- `controller`: the part that every broker has, with `election` and the event queue (`events`).

Every broker writes administrators' requests to the store in `barnabas.administration`; the controller reacts.
"""
