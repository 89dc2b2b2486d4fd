"""Grafana dashboard and Prometheus alert rules for the metrics of brokers and of the pipeline service."""
