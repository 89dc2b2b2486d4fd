"""Record batches to Arrow, a column at a time: one decoder for the client's tables and for Spark.

Nothing of the broker imports this folder: it needs numpy and pyarrow (the extra `tables` or `spark`).

- `decode`: batches to one Arrow batch. `varints` reads a whole column of them.
- `pieces`: Arrow batches of about a megabyte.
- `legacy`: messages of formats 0 and 1.
- `schema`: the columns and their types.
"""
