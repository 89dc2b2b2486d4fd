"""What keeps pipelines: their topic, a supervisor, drivers as processes, Connect's REST. Knows no Spark."""
