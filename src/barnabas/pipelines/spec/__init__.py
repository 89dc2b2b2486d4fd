"""What a pipeline says: its options, how a spec is read and judged, and its columns. Knows no Spark."""
