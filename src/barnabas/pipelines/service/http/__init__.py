"""REST interface of the pipeline service, with the paths of Kafka Connect."""
