"""One segment of a log: a file of batches with its offset, time and transaction indexes."""
