"""Table sink: micro-batches into Delta Lake and Apache Iceberg tables."""
