"""Requests of the controller to brokers: batches, channels, delivery."""
