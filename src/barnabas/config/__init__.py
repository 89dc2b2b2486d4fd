"""Settings of brokers, topics and groups: definitions, precedence, and the values in force.

A key has one row (`definitions`): its name, type, default, bounds, when it may change and a sentence for
people are written there only. `dynamic.layers` searches for a value: first the topic's or group's own. The
broker's dynamic settings follow, then those of all brokers, the properties of the start, and the row's
default. `dynamic.changes` interprets a request before anything is written. `dynamic.repository` checks and
writes it. It knows the coordination store only as the interface in `dynamic.store`, because `cluster` lies
above.

Components hold the values in force, and read an attribute at each use. There are two such views:
`broker_config.BrokerConfig`, which the repository keeps current, and `log_config.LogConfig`, which is
replaced when a setting of its topic changes.
"""
