"""The same requests to Barnabas and to Apache Kafka, and their answers field by field.

Kafka is right unless `accepted.toml` says why not. A case (`cases/`) is a generator that builds requests and
is sent the answers; it runs once against each broker, in every version of its API in which it can be said. A
name replaces values that cannot be equal: ids, ports, the time (`normalise`). All others must be equal.
"""
