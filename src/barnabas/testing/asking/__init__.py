"""Questions and interventions of a test, through Kafka's protocol."""
