"""Points at which applications extend producers and consumers, and the types that they see there.

- `records`: `Record`, `RecordMetadata`, `ProducerRecord`.
- `serializers`: keys and values to bytes and back.
- `interceptors`: functions that see every record.
- `client_metrics`: the numbers that a client keeps about itself.

Nothing here does I/O.
"""
