"""Data that the console reads from a cluster: `rows` is the data, `interface` the questions."""
