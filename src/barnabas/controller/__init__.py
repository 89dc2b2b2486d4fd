"""What decides: which topics exist, who leads their partitions, which settings hold.

Decisions are pure functions over what is known (`topic_rules`, `config_layers`,
`config_changes`); the classes around them (`TopicAdmin`, `ConfigRepository`, `ProducerIds`)
write a decision to the coordination store first and only then make it true here. A crash in
between is repaired from the store at the next start.
"""
