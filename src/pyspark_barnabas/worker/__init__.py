"""Python workers of Spark."""
