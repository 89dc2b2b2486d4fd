"""Broker process: wires the concrete classes together, and starts and stops them in order."""
