"""Commands that start brokers, and commands on brokers and the cluster."""
