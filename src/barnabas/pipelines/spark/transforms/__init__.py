"""Transforms over whole tables: one file per family."""
