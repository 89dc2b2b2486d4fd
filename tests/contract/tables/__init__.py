"""Tables of both formats, against what Polars and DuckDB read."""
