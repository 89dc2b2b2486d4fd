"""Every setting of a broker, a topic and a group: its row, where its value comes from, what is in force.

A key has one row (`rows`): its name, type, default, bounds, who may change it and a sentence for people are
written there and nowhere else. `layers` is the search for a value: the topic's or group's own, then the
broker's dynamic settings, those of all brokers, the properties it was started with, and the row's default.
`changes` says what a request means before anything is written; `repository` checks and writes it, and knows
the coordination store only as the interface in `store`, because `cluster` lies above.

Components hold the values in force and read an attribute at each use: `broker_config.BrokerConfig`, which the
repository keeps current, and `log_config.LogConfig`, which is replaced when a setting of its topic changes.
"""
