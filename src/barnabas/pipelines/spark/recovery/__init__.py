"""Recovery of failed micro-batches: quarantine, bisection and dead letters."""
