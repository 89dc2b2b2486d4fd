"""Where rows go: one file per kind of sink."""
