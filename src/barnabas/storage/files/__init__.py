"""Names, checkpoints and failures of files, the path of a log, and the environment that logs share."""
