"""The view of a cluster of this machine, which its brokers answer from memory (`barnabas.inspection`)."""
