"""View of a cluster through the client library: works against any Kafka."""
