"""Foundation of all other packages: ids, errors, time, files, limits, metrics."""
