"""Threads, loops, clocks and connections of brokers that run inside a test."""
