"""State machines of partitions and replicas, and the selection of leaders."""
