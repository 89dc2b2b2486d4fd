"""Topics as tables: bounded reads without a group, and SQL over them.

- `time_bounds`: "10m", a datetime or milliseconds as a time.
- `read`: `barnabas.read`, whose result becomes an Arrow table, Polars, pandas or DuckDB.
- `sql`: queries by DuckDB, with lower bounds of time pushed down to offsets.

Everything here needs the extra `tables`; SQL needs `sql`.
"""
