"""Transaction markers: written to local and remote leaders until a transaction is complete."""
