"""Commands on topics, their records, and the groups and transactions that use them."""
