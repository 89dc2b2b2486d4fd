"""What the console reads of a cluster: `rows` is the data, `interface` the questions."""
