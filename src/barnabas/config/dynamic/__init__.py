"""Settings that change at run time: layers, the repository and its store."""
