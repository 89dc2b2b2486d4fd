"""Attempts at a task: claims, staging, copies and markers."""
