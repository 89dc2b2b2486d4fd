"""Traffic of Kafka clients: recorded by a proxy, kept in a file, replayed and compared."""
