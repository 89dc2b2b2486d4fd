"""HTTP server of the metrics page and the pipeline service."""
