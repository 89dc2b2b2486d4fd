"""Writers of the data source: at least once, and exactly once in transactions."""
