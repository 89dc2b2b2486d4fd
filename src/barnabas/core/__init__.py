"""What every other package stands on and what changes least: ids, errors, time, files, limits, metrics."""
