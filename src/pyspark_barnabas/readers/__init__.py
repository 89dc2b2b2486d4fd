"""Reading topics as streams and batches."""
