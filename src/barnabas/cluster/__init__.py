"""The cluster's shared truth: znodes, the coordination interface and its stores, registration, metadata."""
