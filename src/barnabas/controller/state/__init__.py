"""Controller state: the context, its state tables, and its access to the store."""
